//! Failed rows on their way from the tail to the dead-letter table.

use crate::tail::Failure;

/// A failed row of a batch.
#[derive(Debug, Clone)]
pub(crate) struct FailedRow {
    pub(crate) epoch: u64,
    pub(crate) step: u64,
    pub(crate) pass: u64,
    /// File of the row, as an index into the snapshot's files.
    pub(crate) file: u32,
    pub(crate) child: u32,
    pub(crate) failure: Failure,
    pub(crate) outcome: &'static str,
}
