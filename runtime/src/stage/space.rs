//! The file space that temporary files may take.
//!
//! A temporary file has no name, so the system removes it when the process ends, even after a
//! crash.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Default limit for all temporary files of a run together, in bytes.
const DEFAULT_LIMIT: u64 = 100 << 30;

/// The limited file space that the temporary files of a run share. When its limit is reached,
/// spilling fails.
#[derive(Debug)]
pub(crate) struct SpillSpace {
    limit: u64,
    used: AtomicU64,
}

impl Default for SpillSpace {
    fn default() -> Self {
        Self::new(DEFAULT_LIMIT)
    }
}

impl SpillSpace {
    /// Creates a file space with a limit of `limit` bytes.
    pub(crate) const fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
        }
    }

    /// Returns the current size of all temporary files, in bytes.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Creates an unnamed, empty file in the system's folder for temporary files (`TMPDIR`).
    pub(super) fn create(self: &Arc<Self>) -> io::Result<SpillFile> {
        Ok(SpillFile {
            file: tempfile::tempfile()?,
            bytes: 0,
            space: Arc::clone(self),
        })
    }
}

/// A temporary file, deleted on drop.
#[derive(Debug)]
pub(super) struct SpillFile {
    pub(super) file: File,
    bytes: u64,
    space: Arc<SpillSpace>,
}

impl SpillFile {
    /// Appends `bytes` to the file. Fails if the temporary files of the run together would exceed
    /// the limit of the space.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let more = bytes.len() as u64;
        let used = self.space.used.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        if used.saturating_add(more) > self.space.limit {
            return Err(io::Error::other(format!(
                "the temporary files of the run would take more than {} bytes",
                self.space.limit
            )));
        }
        self.file.write_all(bytes)
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        self.space.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
