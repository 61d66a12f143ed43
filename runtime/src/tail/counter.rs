//! The counter of computed rows. It passes rows to the stream's accountant if rows are counted only
//! after they are computed.

use super::held::{Held, PendingRows};
use crate::fragment::row_batch::RowBatch;
use crate::stream::accountant::{Accountant, BatchRules};
use crate::stream::cursor::{Cursor, InputPosition};

/// Counter that counts computed rows and groups them into batches.
#[derive(Debug)]
pub(crate) struct Counter {
    pub(super) accountant: Accountant<Held>,
    pub(super) pieces: PendingRows,
    /// Number of the stored row from which the last computed row came, and the number of rows
    /// computed from that stored row so far.
    pub(super) last_row: Option<(u64, u32)>,
    /// Positions in the inputs after the last computed row.
    pub(super) at: InputPosition,
    /// Rows that the resume token carries. They are collected here until
    /// [`Tail::restored`](super::Tail::restored) gets their groups.
    pub(super) restored: Vec<RowBatch>,
}

impl Counter {
    /// Creates a counter that begins at the cursor `at`.
    pub(crate) fn new(rules: BatchRules, at: &Cursor) -> Self {
        let last_row = match at.arms.as_slice() {
            [input] => input.row,
            _ => None,
        };
        Self {
            accountant: Accountant::new(rules, at),
            pieces: PendingRows::default(),
            last_row,
            at: InputPosition::default(),
            restored: Vec::new(),
        }
    }

    /// Begins epoch `epoch`; does nothing if `epoch` is already the current epoch.
    pub(super) fn begin(&mut self, epoch: u64) {
        if epoch != self.accountant.epoch {
            self.accountant.begin(epoch);
            self.last_row = None;
        }
    }

    /// Returns the number of output rows that the stored row with number `stored` gave in the
    /// pieces so far.
    pub(super) fn given(&self, mixes: bool, stored: u64) -> u32 {
        match self.last_row {
            // Under MIX, two successive pieces may have the same stored row in two passes over an
            // input.
            Some((last, given)) if !mixes && last == stored => given,
            _ => 0,
        }
    }
}
