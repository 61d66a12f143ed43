//! Recent events of the processes of a worker, for its status.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Number of events that are kept.
const KEPT: usize = 4;

/// The latest events, bounded.
#[derive(Debug, Default)]
pub struct Events(Mutex<VecDeque<String>>);

impl Events {
    /// Logs an event, and keeps it.
    pub(crate) fn note(&self, event: String) {
        tracing::warn!(target: "forebay::python", "{event}");
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() == KEPT {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// Returns the latest events, oldest first.
    pub(crate) fn latest(&self) -> Vec<String> {
        let events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().cloned().collect()
    }
}
