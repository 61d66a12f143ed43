//! Names of segments: pure data from which any process that has opened the same job finds the rows
//! of a segment.
//!
//! A name does not list stored rows. It lists windows, and positions in the order of each window,
//! so that it is small, and so that whoever computes the segment derives the rows from the job.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Name of a segment. The rows of a segment, and therefore its output, are a pure function of the
/// opened job and this name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentName {
    /// The windows that contain the segment's rows.
    pub(crate) windows: Vec<SegmentWindow>,
    /// The segment's stored rows, in the order of its output.
    pub(crate) runs: Vec<RowRun>,
    /// For each stored row, the range of its output rows to keep, counted from 0; `None` to keep
    /// all output rows.
    pub(crate) wanted: Option<Vec<Range<u32>>>,
    /// True if `wanted` counts all children that `unnest` makes of a stored row, including children
    /// that a filter above the `unnest` drops.
    pub(crate) by_child: bool,
    /// Number of output rows that were counted for this segment in advance; `None` if rows were not
    /// counted.
    pub(crate) planned: Option<u64>,
}

/// A window of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SegmentWindow {
    /// A window of a pass over an input. The order of its rows is that of the pass.
    OfPass {
        /// Index of the input.
        input: u32,
        /// Epoch of the pass.
        epoch: u64,
        /// Number of earlier passes over the input in the epoch.
        pass: u32,
        /// Index of the window in the order of the pass.
        index: u32,
    },
    /// The rows of a split, in stored order. Their draws are those of the pass with a given hash
    /// key, which a dead letter records.
    Split {
        /// Index into the snapshot's splits.
        split: u32,
        /// Hash key of the pass.
        key: u64,
    },
}

/// Consecutive rows of a segment that belong to the same window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RowRun {
    /// Rows that follow each other in the order of the window. Positions count all rows of the
    /// window, including rows that a scan prunes.
    Ordered {
        /// Index into the segment's windows.
        window: u32,
        /// Position of the first row.
        start: u32,
        /// Number of rows.
        rows: u32,
    },
    /// A single row whose position in its window is unknown: a row that a cursor carries, or a row
    /// of a dead letter.
    Stored {
        /// Index into the segment's windows.
        window: u32,
        /// Index into the snapshot's splits.
        split: u32,
        /// Index of the row among the split's rows.
        offset: u32,
    },
}

impl RowRun {
    /// Returns the index of the run's window, and the number of rows in the run.
    pub(crate) const fn extent(&self) -> (u32, u32) {
        match *self {
            Self::Ordered { window, rows, .. } => (window, rows),
            Self::Stored { window, .. } => (window, 1),
        }
    }
}

impl SegmentName {
    /// Returns the number of stored rows in the segment.
    pub fn rows(&self) -> u64 {
        let rows = self.runs.iter().map(|run| u64::from(run.extent().1));
        rows.fold(0, u64::saturating_add)
    }

    /// Returns the window of the segment's first row; `None` if the segment has no rows.
    pub fn first_window(&self) -> Option<SegmentWindow> {
        let (window, _) = self.runs.first()?.extent();
        self.windows.get(window as usize).copied()
    }
}
