//! Failed rows, as the tail passes them to the dead-letter table.

use crate::tail::Failure;

/// A failed row of a batch.
#[derive(Debug, Clone)]
pub(crate) struct FailedRow {
    pub(crate) epoch: u64,
    pub(crate) step: u64,
    pub(crate) pass: u64,
    /// Index into the snapshot's files of the row's file.
    pub(crate) file: u32,
    pub(crate) child: u32,
    pub(crate) failure: Failure,
    pub(crate) outcome: &'static str,
}
