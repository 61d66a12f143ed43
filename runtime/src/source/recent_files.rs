//! Keeps what was read of the most recently used files of a source.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Values that were read from files, by the index of the file. Beyond a number of files, the value
/// of the least recently used file is dropped.
#[derive(Debug)]
pub(super) struct RecentFiles<T> {
    /// The most recently used file first.
    files: Mutex<VecDeque<(usize, Slot<T>)>>,
    max_files: usize,
}

/// The value of a file; `None` until it is read. A reader holds the lock while it reads, so that
/// the others wait for the value.
type Slot<T> = Arc<Mutex<Option<Arc<T>>>>;

impl<T> RecentFiles<T> {
    pub(super) const fn new(max_files: usize) -> Self {
        Self {
            files: Mutex::new(VecDeque::new()),
            max_files,
        }
    }

    /// Returns the value of a file, which `read` reads if it is not kept. An error is not kept, so
    /// the next call reads again.
    pub(super) fn get_or_read<E>(
        &self,
        file: usize,
        read: impl FnOnce() -> Result<Arc<T>, E>,
    ) -> Result<Arc<T>, E> {
        let slot = self.slot(file);
        let mut value = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = &*value {
            return Ok(Arc::clone(value));
        }
        let read = read()?;
        *value = Some(Arc::clone(&read));
        Ok(read)
    }

    fn slot(&self, file: usize) -> Slot<T> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let at = files.iter().position(|(of, _)| *of == file);
        let found = at.and_then(|at| files.remove(at));
        let slot = found.map_or_else(Slot::default, |(_, slot)| slot);
        files.push_front((file, Arc::clone(&slot)));
        files.truncate(self.max_files);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_recent_files_are_kept_and_errors_are_not() {
        let recent = RecentFiles::new(2);
        let read = |file, value| recent.get_or_read(file, || value);
        assert_eq!(read(1, Err("down")), Err("down"));
        assert_eq!(read(1, Ok(Arc::new("a"))), Ok(Arc::new("a")));
        assert_eq!(read(2, Ok(Arc::new("b"))), Ok(Arc::new("b")));
        assert_eq!(read(1, Err("kept")), Ok(Arc::new("a")));
        assert_eq!(read(3, Ok(Arc::new("c"))), Ok(Arc::new("c")));
        assert_eq!(read(1, Err("kept")), Ok(Arc::new("a")));
        assert_eq!(read(2, Err("dropped")), Err("dropped"));
    }
}
