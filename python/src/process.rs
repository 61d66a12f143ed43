//! Values that only the process that created them may use or drop.

use std::mem::forget;

/// A value of one process. In a forked child, the threads that the value relies on do not exist,
/// and its locks may be held forever. So a child neither uses nor drops the value.
#[derive(Debug)]
pub(crate) struct OfProcess<T> {
    process: u32,
    /// `None` only after [`take`](Self::take).
    value: Option<T>,
}

impl<T> OfProcess<T> {
    /// Wraps a value of this process.
    pub(crate) fn new(value: T) -> Self {
        Self {
            process: std::process::id(),
            value: Some(value),
        }
    }

    fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns the value; `None` if another process created it.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_own())
    }

    /// Takes the value out; `None` if another process created it.
    pub(crate) fn take(mut self) -> Option<T> {
        if self.is_own() {
            self.value.take()
        } else {
            None
        }
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if !self.is_own() {
            forget(self.value.take());
        }
    }
}
