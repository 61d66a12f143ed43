//! Keeps the dictionaries of recently read Arrow IPC files in memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::file::Dictionaries;

/// Maximum number of files whose dictionaries a source keeps. Beyond this number, the dictionaries
/// of the least recently read file are dropped.
const FILES: usize = 4;

/// Dictionaries of recently read files, with the index of the file, the most recently read file
/// first.
#[derive(Debug, Default)]
pub(super) struct DictionaryCache(Mutex<VecDeque<(usize, Arc<Dictionaries>)>>);

impl DictionaryCache {
    pub(super) fn get(&self, file: usize) -> Option<Arc<Dictionaries>> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = held.iter().position(|(of, _)| *of == file)?;
        let found = held.remove(at)?;
        let dictionaries = Arc::clone(&found.1);
        held.push_front(found);
        Some(dictionaries)
    }

    pub(super) fn keep(&self, file: usize, dictionaries: Arc<Dictionaries>) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.push_front((file, dictionaries));
        held.truncate(FILES);
    }
}
