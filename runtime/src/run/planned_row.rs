//! Rows that are planned to be computed, and the windows they belong to.

use std::sync::Arc;

use crate::order::{PassName, StoredRow};
use crate::segment::LazyWindow;
use crate::stream::accountant::StreamRow;
use crate::stream::cursor::CarriedRow;

/// A window with rows that are not emitted yet.
#[derive(Debug, Clone)]
pub(super) struct ActiveWindow {
    /// Number of the window in this run.
    pub(super) id: u32,
    pub(super) index: u32,
    pub(super) pass: PassName,
    /// Key of the pass that the window belongs to.
    pub(super) key: u64,
    pub(super) window: Arc<LazyWindow>,
}

/// A row to be computed, in a window of the sequencer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlannedRow {
    pub(super) row: StoredRow,
    /// Number of the stored row in the snapshot.
    pub(super) stored: u64,
    /// Ordinal among the output rows that the stored row gives.
    pub(super) nth: u32,
    /// Number in this run of the row's window.
    pub(super) window: u32,
    pub(super) pass: PassName,
}

impl StreamRow for PlannedRow {
    fn carried(&self) -> CarriedRow {
        let &Self {
            stored, nth, pass, ..
        } = self;
        CarriedRow { stored, nth, pass }
    }
}
