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
    /// Identities of the rows. In a batch of packs, these are the rows that were packed.
    pub rows: RowColumn,
    /// Number of rows (or packs) at the end of the batch that only repeat rows (or packs) of this
    /// batch or of another batch.
    pub padded: usize,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) name: Arc<StreamName>,
    pub(super) cursor: Arc<Cursor>,
}

impl Batch {
    /// Iterates over the row keys: file (path relative to its source), row number in the file, and
    /// child index.
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
