//! Values of which each process has one.

use std::mem;
use std::sync::{Arc, Mutex, TryLockError};

/// Attempts to take the lock before giving up. Other threads hold it while they make the value, once.
const ATTEMPTS: usize = 64;

/// A value that the process makes once and shares, and that a forked child makes anew: threads do not survive a fork, and
/// the parent's work never ends in the child.
#[derive(Debug)]
pub(crate) struct ProcessWide<T>(Mutex<Option<(u32, Arc<T>)>>);

impl<T> ProcessWide<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns the process's value, or `None` if its lock cannot be taken: a child that was forked while another thread
    /// held the lock can never take it.
    ///
    /// # Errors
    /// `make` fails.
    pub(crate) fn get_or_try_init<E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Option<Arc<T>>, E> {
        let lock = (0..ATTEMPTS).find_map(|_| match self.0.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                None
            }
        });
        let Some(mut shared) = lock else {
            return Ok(None);
        };
        let process = std::process::id();
        if let Some((owner, value)) = &*shared
            && *owner == process
        {
            return Ok(Some(Arc::clone(value)));
        }
        let value = Arc::new(make()?);
        // Dropping the parent's value could wait for threads that the child does not have.
        mem::forget(shared.replace((process, Arc::clone(&value))));
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_makes_its_value_once() {
        static SHARED: ProcessWide<u32> = ProcessWide::new();
        assert_eq!(SHARED.get_or_try_init(|| Err("not now")), Err("not now"));
        let first = SHARED.get_or_try_init(|| Ok::<_, ()>(1)).unwrap().unwrap();
        let again = SHARED.get_or_try_init(|| Ok::<_, ()>(2)).unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &again));
    }

    #[test]
    fn a_lock_that_stays_taken_blocks_nobody() {
        static SHARED: ProcessWide<u32> = ProcessWide::new();
        let held = SHARED.0.lock().unwrap();
        assert_eq!(SHARED.get_or_try_init(|| Ok::<_, ()>(1)), Ok(None));
        drop(held);
        assert!(SHARED.get_or_try_init(|| Ok::<_, ()>(1)).unwrap().is_some());
    }
}
