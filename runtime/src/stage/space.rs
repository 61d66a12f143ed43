//! The space for temporary files.
//!
//! A temporary file has no name, so the system frees it when the process ends, even after a crash.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Default limit for all temporary files of a run together, in bytes.
const DEFAULT_LIMIT: u64 = 100 << 30;

/// The file space that the temporary files of a run share; beyond its limit, spilling fails.
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
    /// Creates a space of `limit` bytes.
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

    /// Creates an unnamed file in the system's folder for temporary files (`TMPDIR`).
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
    /// Appends bytes to the file. Fails if all files together would exceed the space's limit.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let more = bytes.len() as u64;
        let used = self.space.used.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        if used.saturating_add(more) > self.space.limit {
            return Err(io::Error::other(format!(
                "temporary files would take more than {} bytes; give the run more memory, or shuffle within \
                 smaller windows",
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
