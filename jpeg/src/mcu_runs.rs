//! The MCUs that are decoded for a region, and the coded data that they take.

use std::ops::Range;

use crate::bits::BLOCK_ROOM;
use crate::seek_index::{SeekIndex, SeekPoint};
use crate::seek_recorder::SeekRecorder;
use crate::segments::CodedData;

/// The needed MCUs of a scan.
#[derive(Debug)]
pub(crate) struct McuWindow {
    /// Number of MCUs in a row.
    pub(crate) across: usize,
    /// Needed columns and rows of MCUs.
    pub(crate) columns: Range<usize>,
    pub(crate) rows: Range<usize>,
    /// Number of MCUs of a segment; [`usize::MAX`] without restart markers.
    pub(crate) interval: usize,
}

/// MCUs that are decoded one after another.
#[derive(Debug)]
pub(crate) struct McuRun {
    /// The MCU at whose point the data is entered, and the point.
    pub(crate) source: (usize, SeekPoint),
    /// First MCU: the one of the point, or the first one of a segment after it.
    pub(crate) first: usize,
    /// Needed rows of MCUs.
    pub(crate) rows: Range<usize>,
}

impl McuWindow {
    /// Returns the MCUs to be decoded. Without an index, they are one run.
    pub(crate) fn runs(&self, index: Option<&SeekIndex>) -> Vec<McuRun> {
        let mut runs: Vec<McuRun> = Vec::new();
        for row in self.rows.clone() {
            let needed = self.first(row);
            let source = index.map_or_else(Default::default, |i| i.at_or_before(needed));
            let first = match runs.last_mut() {
                // No MCUs between the rows can be jumped over.
                Some(last) if source.0 <= self.end(last) => {
                    last.rows.end = row + 1;
                    continue;
                }
                Some(_) => source.0,
                // An index is recorded without a gap.
                None if index.is_some_and(|i| !i.is_complete()) => source.0,
                // Segments are independent, so those before the needed rows are not read.
                None => source.0.max(self.first_of_segment()),
            };
            runs.push(McuRun {
                source,
                first,
                rows: row..row + 1,
            });
        }
        runs
    }

    /// Returns the first needed MCU of a row.
    pub(crate) const fn first(&self, row: usize) -> usize {
        row * self.across + self.columns.start
    }

    /// Returns the first MCU of the segment in which the needed ones begin.
    pub(crate) const fn first_of_segment(&self) -> usize {
        self.first(self.rows.start) / self.interval * self.interval
    }

    /// Returns the MCU after the last needed one of a run.
    const fn end(&self, run: &McuRun) -> usize {
        (run.rows.end - 1) * self.across + self.columns.end
    }
}

/// The coded data of a scan in its file.
#[derive(Debug)]
pub(crate) struct ScanSource<'a> {
    pub(crate) file: &'a [u8],
    /// Byte offset of the first coded byte.
    pub(crate) start: usize,
    /// The index to use and to extend.
    pub(crate) index: Option<&'a mut SeekIndex>,
}

impl ScanSource<'_> {
    /// Takes the data of a run. Returns the file's offset of the marker after the data, and the
    /// recorder of the points that the run adds to the index.
    pub(crate) fn take(
        &mut self,
        window: &McuWindow,
        run: &McuRun,
        coded: &mut CodedData,
    ) -> (usize, Option<SeekRecorder<'_>>) {
        let end = window.end(run);
        let (mcu, point) = run.source;
        let most = end.div_ceil(window.interval) - mcu / window.interval;
        let at = |bits: u64| self.start.saturating_add((bits / 8) as usize);
        if let Some(bits) = self.index.as_ref().and_then(|i| i.bits_before(end)) {
            // Blocks near the end of the data are read more slowly, so it ends later than needed.
            let limit = at(bits).saturating_add(2 * BLOCK_ROOM);
            let file = self.file.get(..limit).unwrap_or(self.file);
            return (coded.take(file, at(point.bits), most), None);
        }
        let after = coded.take(self.file, at(point.bits), most);
        let index = self.index.as_deref_mut().filter(|i| !i.is_complete());
        let stored = self.file.get(self.start..).unwrap_or_default();
        (
            after,
            index.map(|i| SeekRecorder::new(i, stored, point.bits)),
        )
    }
}
