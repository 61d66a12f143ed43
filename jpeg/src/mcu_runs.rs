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
    /// Returns the run that begins with a needed row; `None` after the last one. Without an index,
    /// all rows are one run.
    pub(crate) fn run(&self, row: usize, index: Option<&SeekIndex>) -> Option<McuRun> {
        if row >= self.rows.end {
            return None;
        }
        let source = |row| {
            let first = self.first(row);
            index.map_or_else(Default::default, |i| i.at_or_before(first))
        };
        let mut run = McuRun {
            source: source(row),
            first: source(row).0,
            rows: row..row + 1,
        };
        // Segments are independent, so those before the first row are not read. An index, however,
        // is recorded without a gap.
        let is_recorded = index.is_some_and(|i| !i.is_complete());
        if row == self.rows.start && !is_recorded {
            run.first = run.first.max(self.first_of_segment());
        }
        // Where no point is between two rows, there is nothing to jump over.
        while run.rows.end < self.rows.end && source(run.rows.end).0 <= self.end(&run) {
            run.rows.end += 1;
        }
        Some(run)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::JpegHeader;
    use crate::seek_index::tests::{headers, index_of};

    fn window(columns: Range<usize>, rows: Range<usize>, interval: usize) -> McuWindow {
        McuWindow {
            across: 40,
            columns,
            rows,
            interval,
        }
    }

    /// Returns the index of an image of 400 MCUs with so many points.
    fn index(points: usize) -> SeekIndex {
        let header = JpegHeader::read(&headers(1, 8 * 400)).unwrap();
        let point = |i| SeekPoint {
            bits: 1000 * (i as u64 + 1),
            predictions: [0; 4],
        };
        let points: Vec<SeekPoint> = (0..points).map(point).collect();
        index_of(&header, &points, false)
    }

    /// Returns the first MCU and the rows of each run.
    fn runs(window: &McuWindow, index: Option<&SeekIndex>) -> Vec<(usize, Range<usize>)> {
        let mut row = window.rows.start;
        let mut runs = Vec::new();
        while let Some(run) = window.run(row, index) {
            row = run.rows.end;
            runs.push((run.first, run.rows));
        }
        runs
    }

    #[test]
    fn a_run_begins_at_the_last_point_before_its_row() {
        let complete = index(49);
        let narrow = window(11..20, 2..5, usize::MAX);
        let found = runs(&narrow, Some(&complete));
        assert_eq!(found, [(88, 2..3), (128, 3..4), (168, 4..5)]);
        assert_eq!(runs(&narrow, None), [(0, 2..5)]);
        // The points end within the third row, and after its needed columns.
        assert_eq!(runs(&narrow, Some(&index(11))), [(88, 2..5)]);
        assert_eq!(runs(&narrow, Some(&index(14))), [(88, 2..3), (112, 3..5)]);
        let wide = window(1..40, 2..5, usize::MAX);
        assert_eq!(runs(&wide, Some(&complete)), [(80, 2..5)]);
    }

    #[test]
    fn segments_before_a_region_are_read_for_the_index_only() {
        let window = window(11..20, 2..3, 9);
        assert_eq!(runs(&window, None), [(90, 2..3)]);
        assert_eq!(runs(&window, Some(&index(49))), [(90, 2..3)]);
        assert_eq!(runs(&window, Some(&index(3))), [(24, 2..3)]);
        let mut closed = index(3);
        closed.close();
        assert_eq!(runs(&window, Some(&closed)), [(90, 2..3)]);
    }
}
