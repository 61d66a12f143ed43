//! Keeps the page indexes of the files that were last read with pruning.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use parquet::file::metadata::ParquetMetaData;

/// Maximum number of files whose page indexes a source keeps.
const FILES: usize = 16;

/// The footer of a file with its page index, which the first reader reads while the others wait.
pub(super) type IndexedFooter = OnceLock<Arc<ParquetMetaData>>;

/// Footers with page indexes, by the index of the file, the most recently read file first.
#[derive(Debug, Default)]
pub(super) struct IndexedFooters(Mutex<VecDeque<(usize, Arc<IndexedFooter>)>>);

impl IndexedFooters {
    /// Returns the footer of a file, which may be empty still.
    pub(super) fn of(&self, file: usize) -> Arc<IndexedFooter> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(of, _)| *of == file);
        let found = at.and_then(|at| kept.remove(at));
        let (_, footer) = found.unwrap_or_default();
        kept.push_front((file, Arc::clone(&footer)));
        kept.truncate(FILES);
        footer
    }
}
