//! The ways in which a run learns how many rows each stored row gives.

use std::sync::Arc;

use crate::job::row_counts::RowCounts;

/// The way a run learns how many rows each stored row gives.
#[derive(Debug, Clone)]
pub(super) enum RowCountSource {
    /// Each stored row gives one row, so nothing is counted.
    Nothing,
    /// The counts, which are the same in every epoch.
    Fixed(Arc<RowCounts>),
    /// Random draws decide the counts, so they are counted for each pass.
    Passes,
    /// Rows are counted as they are computed. The counts are those of the inputs of a MIX, if a
    /// filter decides which rows the inputs give.
    AsComputed(Option<Arc<RowCounts>>),
}

/// The time at which rows are counted: before or while they are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountingMode {
    /// Rows are known before they are read. A window with at least this many rows certainly has
    /// rows of this rank, so it is staged ahead.
    Planned(u64),
    /// Rows are counted as they are computed. A window is staged before its rows are ordered.
    Counted,
}
