//! Values that exist once in each process.

use std::mem;
use std::sync::{Arc, Mutex, TryLockError};

/// Number of attempts to lock the value. Another thread holds the lock only while it creates the
/// value, which happens once.
const ATTEMPTS: usize = 64;

/// A value that a process creates once and then shares. A forked child creates a new value, because
/// threads do not survive a fork, and work that the parent started never ends in the child.
#[derive(Debug)]
pub(crate) struct ProcessWide<T>(Mutex<Option<(u32, Arc<T>)>>);

impl<T> ProcessWide<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns the value of this process, which the first call creates with `make`; `None` if the
    /// lock cannot be taken. A child that was forked while another thread held the lock can never
    /// take the lock.
    ///
    /// # Errors
    /// Returns the error of `make`.
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
        // The parent's value is leaked, because dropping it could wait for threads that do not
        // exist in the child.
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
