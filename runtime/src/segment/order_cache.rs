//! Cache of ordered windows, for segments that are found by their names.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::name::SegmentWindow;
use super::ordered::OrderedWindow;
use crate::order::StoredRow;

/// A window that is ordered when it is first needed.
pub(crate) type OnceOrdered = Arc<OnceCell<Arc<OrderedWindow>>>;

/// Cache of the windows that named segments use, with the order of their rows.
#[derive(Debug)]
pub(crate) struct OrderCache {
    /// Maximum size of the orders in bytes. The window used last always stays.
    limit: u64,
    /// The windows, least recently used first.
    recent: Mutex<VecDeque<(SegmentWindow, OnceOrdered)>>,
}

impl OrderCache {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            recent: Mutex::default(),
        }
    }

    /// Returns the cached window `name`, or an empty cell for it.
    pub(crate) fn get(&self, name: SegmentWindow) -> OnceOrdered {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let known = recent.iter().position(|(of, _)| *of == name);
        let known = known.and_then(|at| recent.remove(at));
        let cell = known.map(|(_, cell)| cell).unwrap_or_default();
        recent.push_back((name, Arc::clone(&cell)));
        let bytes = |cell: &OnceOrdered| {
            let rows = cell.get().map_or(0, |window| window.rows.len());
            (rows * size_of::<StoredRow>()) as u64
        };
        let mut all: u64 = recent.iter().map(|(_, cell)| bytes(cell)).sum();
        while recent.len() > 1 && all > self.limit {
            let Some((_, oldest)) = recent.pop_front() else {
                break;
            };
            all -= bytes(&oldest);
        }
        cell
    }
}
