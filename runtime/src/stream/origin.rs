//! The origin of a segment's rows: the stored rows of the segment, and the positions of the inputs
//! before the segment. Used if rows are counted as they are computed.

use std::sync::Arc;

use super::cursor::{CarriedRow, InputPosition};
use crate::order::{Snapshot, StoredRow};
use crate::segment::SegmentRows;

/// The stored rows of a segment, and the positions of the inputs before the segment. The positions
/// of the inputs after each row are computed from these.
#[derive(Debug)]
pub(crate) struct SegmentOrigin {
    pub(crate) epoch: u64,
    /// Positions of the inputs before the segment's first row. The inputs have already entered the
    /// windows that the segment's rows belong to.
    pub(crate) before: InputPosition,
    pub(crate) rows: SegmentRows,
    /// For each scan of the snapshot, the index of the input that the scan belongs to.
    pub(crate) input_of: Arc<[usize]>,
    pub(crate) mixes: bool,
}

impl SegmentOrigin {
    /// Returns the name in a cursor of output row `nth` of the stored row at `position`; `None` if
    /// the segment has fewer rows.
    pub(crate) fn name(&self, snapshot: &Snapshot, position: u64, nth: u32) -> Option<CarriedRow> {
        let row = self.rows.get(position)?;
        let input = self.before.inputs[self.input(snapshot, row)];
        Some(CarriedRow {
            stored: snapshot.stored(row),
            nth,
            pass: (self.epoch, input.pass),
        })
    }

    /// Returns the index of the input that a stored row belongs to.
    fn input(&self, snapshot: &Snapshot, row: StoredRow) -> usize {
        self.input_of[snapshot.scan_of(row)]
    }

    /// Returns the positions of the inputs after the first `given` output rows of the stored row at
    /// position `at`.
    pub(crate) fn behind(&self, snapshot: &Snapshot, at: u64, given: u32) -> InputPosition {
        let InputPosition { drawn, mut inputs } = self.before.clone();
        let mut known = vec![false; inputs.len()];
        let rows = (0..=at).rev();
        for (position, row) in rows.filter_map(|at| Some((at, self.rows.get(at)?))) {
            let input = self.input(snapshot, row);
            if !std::mem::replace(&mut known[input], true) {
                let given = if position == at { given } else { u32::MAX };
                inputs[input].row = Some((snapshot.stored(row), given));
            }
            if known.iter().all(|&known| known) {
                break;
            }
        }
        let drawn = drawn + if self.mixes { at + 1 } else { 0 };
        InputPosition { drawn, inputs }
    }
}
