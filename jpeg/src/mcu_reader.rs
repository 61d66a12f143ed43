//! A place in a scan, which moves from MCU to MCU.

use crate::header::MAX_COMPONENTS;
use crate::mcu_runs::{McuRun, McuWindow};
use crate::seek_recorder::SeekRecorder;
use crate::segments::{CodedData, SegmentReader};

/// A place before an MCU of a run.
#[derive(Debug)]
pub(crate) struct McuReader<'a> {
    coded: &'a CodedData,
    pub(crate) segment: SegmentReader<'a>,
    /// DC values of the last blocks.
    pub(crate) predictions: [i16; MAX_COMPONENTS],
    /// Number of the next MCU in the scan.
    mcu: usize,
    /// The next MCU that begins a segment or has a point to be recorded.
    stop: usize,
    /// Number of MCUs of a segment; [`usize::MAX`] without restart markers.
    interval: usize,
    /// Number of the first segment in the coded data.
    first_segment: usize,
    /// MCU at whose beginning earlier damage is forgotten: MCUs before it are read for the index
    /// only.
    needed_from: usize,
    recorder: Option<SeekRecorder<'a>>,
}

impl<'a> McuReader<'a> {
    /// Creates a reader of a run, whose data is `coded`. It takes over a buffer.
    pub(crate) fn new(
        window: &McuWindow,
        run: &McuRun,
        coded: &'a CodedData,
        recorder: Option<SeekRecorder<'a>>,
        tail: Vec<u8>,
    ) -> Self {
        let (mcu, point) = run.source;
        Self {
            coded,
            segment: SegmentReader::new(coded.segment(0), (point.bits % 8) as usize, tail),
            predictions: point.predictions,
            mcu: run.first,
            stop: run.first,
            interval: window.interval,
            first_segment: mcu / window.interval,
            needed_from: window.first_of_segment(),
            recorder,
        }
    }

    /// Number of the next MCU.
    #[inline(always)]
    pub(crate) const fn mcu(&self) -> usize {
        self.mcu
    }

    /// Moves on to the next MCU, whose blocks are to be read then.
    #[inline(always)]
    pub(crate) fn next(&mut self) {
        if self.mcu == self.stop {
            self.begin();
        }
        self.mcu += 1;
    }

    /// Begins a segment, and records a point, where the next MCU has one.
    #[inline(never)]
    fn begin(&mut self) {
        let segment = self.mcu / self.interval - self.first_segment;
        let is_damaged = self.segment.bits.is_damaged;
        if self.mcu.is_multiple_of(self.interval) {
            self.segment.restart(self.coded.segment(segment));
            self.predictions = [0; MAX_COMPONENTS];
        }
        if self.mcu == self.needed_from {
            self.segment.bits.is_damaged = false;
        }
        let mut next = usize::MAX;
        if let Some(recorder) = &mut self.recorder {
            if is_damaged {
                recorder.close();
            } else if recorder.next() == self.mcu {
                recorder.push(segment, self.segment.position(), self.predictions);
            }
            next = recorder.next();
        }
        let restart = (self.mcu / self.interval + 1).saturating_mul(self.interval);
        self.stop = restart.min(next);
    }
}
