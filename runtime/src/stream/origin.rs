//! The origin of a segment's rows: the stored rows of the segment, and the positions of the inputs
//! before the segment. Used if rows are counted as they are computed.

use std::sync::Arc;

use super::cursor::{CarriedRow, InputPosition};
use crate::order::{RowLocation, Snapshot, StoredRow};

/// The stored rows of a segment, and the positions of the inputs before the segment. The positions
/// of the inputs after each row are computed from these.
#[derive(Debug)]
pub(crate) struct SegmentOrigin {
    pub(crate) epoch: u64,
    /// Positions of the inputs before the segment's first row. The inputs have already entered the
    /// windows that the segment's rows belong to.
    pub(crate) before: InputPosition,
    pub(crate) places: Vec<RowLocation>,
    /// For each scan of the snapshot, the index of the input that the scan belongs to.
    pub(crate) input_of: Arc<[usize]>,
    pub(crate) mixes: bool,
}

impl SegmentOrigin {
    /// Returns the name, in a cursor, of the first output row of the stored row at index `at` of
    /// `places`.
    pub(crate) fn carried(&self, snapshot: &Snapshot, at: usize) -> CarriedRow {
        let row = self.places[at].row;
        CarriedRow {
            stored: snapshot.stored(row),
            nth: 0,
            pass: (
                self.epoch,
                self.before.inputs[self.input(snapshot, row)].pass,
            ),
        }
    }

    /// Returns the index of the input that a stored row belongs to.
    fn input(&self, snapshot: &Snapshot, row: StoredRow) -> usize {
        self.input_of[snapshot.scan_of(row)]
    }

    /// Returns the index in `places` of the row location with this position; `None` if `places` has
    /// no such location. The positions in `places` are consecutive.
    pub(crate) fn index_of(&self, position: u64) -> Option<usize> {
        let first = self.places.first()?.position;
        let at = usize::try_from(position.checked_sub(first)?).ok()?;
        (at < self.places.len()).then_some(at)
    }

    /// Returns the positions of the inputs after the first `given` output rows of the stored row at
    /// index `at` of `places`.
    pub(crate) fn behind(&self, snapshot: &Snapshot, at: usize, given: u32) -> InputPosition {
        let InputPosition { drawn, mut inputs } = self.before.clone();
        let mut known = vec![false; inputs.len()];
        for (nth, place) in self.places[..=at].iter().enumerate().rev() {
            let row = place.row;
            let input = self.input(snapshot, row);
            if !std::mem::replace(&mut known[input], true) {
                let given = if nth == at { given } else { u32::MAX };
                inputs[input].row = Some((snapshot.stored(row), given));
            }
            if known.iter().all(|&known| known) {
                break;
            }
        }
        let drawn = drawn + if self.mixes { at as u64 + 1 } else { 0 };
        InputPosition { drawn, inputs }
    }
}
