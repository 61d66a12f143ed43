//! The counter of computed rows: drives the stream's accountant if rows are counted as they are computed.

use super::held::{Held, Pieces};
use crate::fragment::row_batch::RowBatch;
use crate::stream::accountant::{Accountant, BatchRules};
use crate::stream::cursor::{CarriedRow, Cursor, InputPosition};

/// Counts and groups computed rows.
#[derive(Debug)]
pub(crate) struct Counter {
    pub(super) accountant: Accountant<Held>,
    pub(super) pieces: Pieces,
    /// The stored row that gave the last computed row, and how many rows it has given so far.
    last_row: Option<(u64, u32)>,
    /// Positions of the inputs after the last computed row.
    pub(super) at: InputPosition,
    /// Rows that the cursor carries, until their groups are known.
    pub(super) restored: Vec<RowBatch>,
}

impl Counter {
    /// Creates a counter at the position of a cursor.
    pub(crate) fn new(rules: BatchRules, at: &Cursor) -> Self {
        let last_row = match at.arms.as_slice() {
            [input] => input.row,
            _ => None,
        };
        Self {
            accountant: Accountant::new(rules, at),
            pieces: Pieces::default(),
            last_row,
            at: InputPosition::default(),
            restored: Vec::new(),
        }
    }

    /// Begins an epoch. Does nothing if it is the current epoch.
    pub(super) fn begin(&mut self, epoch: u64) {
        if epoch != self.accountant.epoch {
            self.accountant.begin(epoch);
            self.last_row = None;
        }
    }

    /// Completes the name of a row with its ordinal among the rows of its stored row. Also returns
    /// how many rows that stored row has given so far.
    pub(super) fn named(&mut self, mixes: bool, carried: CarriedRow) -> (CarriedRow, u32) {
        let given = match self.last_row {
            // MIX may draw the same stored row twice in succession, in two passes over an input.
            Some((stored, given)) if !mixes && stored == carried.stored => given + 1,
            _ => 1,
        };
        self.last_row = Some((carried.stored, given));
        let nth = given - 1;
        (CarriedRow { nth, ..carried }, given)
    }
}
