//! Locks whose values survive a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. A panic leaves its value consistent, because no lock here spans two changes
/// that belong together.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
