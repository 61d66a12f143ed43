//! Where counted rows came from.

use std::sync::Arc;

use crate::cursor::{ArmCursor, Carried, Cursor};
use crate::order::Place;
use crate::snapshot::Snapshot;

/// Where counted rows came from: enough to tell where the stream stands behind any of them.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) epoch: u64,
    /// Where the arms stood before the rows, in the windows that the rows are of.
    pub(crate) arms: Vec<ArmCursor>,
    pub(crate) drawn: u64,
    pub(crate) places: Vec<Place>,
    /// By scan of the snapshot: its arm.
    pub(crate) arm_of: Arc<[usize]>,
    pub(crate) mixes: bool,
}

impl Origin {
    /// Where the stream stands before the rows.
    pub(crate) fn before(&self) -> Cursor {
        Cursor {
            epoch: self.epoch,
            drawn: self.drawn,
            arms: self.arms.clone(),
            ..Cursor::default()
        }
    }

    /// A row, by its position and which of the rows of its stored row it is.
    pub(crate) fn carried(&self, snapshot: &Snapshot, position: u64, nth: u32) -> Option<Carried> {
        let at = self.at(position)?;
        let row = self.places[at].row();
        let arm = self.arm_of[snapshot.splits[row.split as usize].scan as usize];
        Some(Carried {
            stored: snapshot.stored(row),
            nth,
            pass: (self.epoch, self.arms[arm].pass),
        })
    }

    /// The place at a position; positions count on.
    fn at(&self, position: u64) -> Option<usize> {
        let first = self.places.first()?.position;
        let at = usize::try_from(position.checked_sub(first)?).ok()?;
        (at < self.places.len()).then_some(at)
    }

    /// Where the stream stands behind a row that has given so many rows.
    pub(crate) fn behind(&self, snapshot: &Snapshot, position: u64, given: u32) -> Option<Cursor> {
        let at = self.at(position)?;
        let mut arms = self.arms.clone();
        let mut known = vec![false; arms.len()];
        for (nth, place) in self.places[..=at].iter().enumerate().rev() {
            let row = place.row();
            let arm = self.arm_of[snapshot.splits[row.split as usize].scan as usize];
            if !std::mem::replace(&mut known[arm], true) {
                let given = if nth == at { given } else { u32::MAX };
                arms[arm].row = Some((snapshot.stored(row), given));
            }
            if known.iter().all(|&known| known) {
                break;
            }
        }
        Some(Cursor {
            drawn: self.drawn + if self.mixes { at as u64 + 1 } else { 0 },
            arms,
            ..self.before()
        })
    }
}
