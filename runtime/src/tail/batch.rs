//! Batches of a run.

use std::sync::Arc;

use arrow::array::RecordBatch;
use forebay_udfs::row::RowColumn;

use crate::order::Snapshot;
use crate::stream::cursor::Cursor;
use crate::stream::token::{StreamName, Token};

/// A batch of a run.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Step in the epoch (in the whole run under `REPEAT .. CONTINUOUS`), from 0.
    pub step: u64,
    /// The columns of the batch.
    pub batch: RecordBatch,
    /// Identities of the rows; in a batch of packs, those of the rows in the packs.
    pub rows: RowColumn,
    /// Number of rows (or packs) at the end that only repeat rows (or packs) of this batch or
    /// another one.
    pub padded: usize,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) name: Arc<StreamName>,
    pub(super) cursor: Arc<Cursor>,
}

impl Batch {
    /// Iterates over the keys of the rows: file (relative to its source), row in the file, and child index.
    pub fn keys(&self) -> impl Iterator<Item = (&str, u64, u32)> {
        (0..self.rows.row.len()).map(|i| {
            let file = self.snapshot.path(self.rows.file.value(i));
            (file, self.rows.row.value(i), self.rows.child.value(i))
        })
    }

    /// Returns the token that resumes a run after this batch.
    pub fn token(&self) -> Token {
        Token::new(&self.name, &self.cursor)
    }
}
