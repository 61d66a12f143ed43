//! Identity of a file's content, from the bytes that opening the source reads of it.
//!
//! | Format | Bytes |
//! |---|---|
//! | CSV, JSON lines | all |
//! | Parquet | the footer and the end of the file, [`TAIL_BYTES`] at least |
//! | Arrow IPC | the same, and the header of each record batch |
//! | Avro | the header, and the row count and length of each block |
//! | image folders | none |
//!
//! Nothing is read for the sake of the identity alone, but for the end of a file: footers are small and are read
//! together with what lies before them. A file that is no larger is identified by all of its bytes.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::hash::Hasher;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use twox_hash::XxHash64;

use super::error::{FileChange, SourceError};
use super::staged::Place;

/// Bytes of the end of a Parquet or Arrow file that identify it, where its footer is not larger.
pub(crate) const TAIL_BYTES: u64 = 64 << 10;

const READ_BYTES: usize = 256 << 10;

/// Hash of a file's content and of the options by which it is read: XXH64, which takes less than half of the time of
/// BLAKE3 over a file that is read as a whole. It tells accidents apart, not forgeries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash([u8; 8]);

impl ContentHash {
    /// The bytes.
    pub const fn bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

/// Computes a [`ContentHash`].
#[derive(Debug, Clone)]
pub(crate) struct ContentHasher(XxHash64);

impl ContentHasher {
    /// Begins the hash of a file of a format, whose rows depend on these options too.
    pub(crate) fn new(format: &str, options: &str) -> Self {
        let mut hasher = XxHash64::with_seed(0);
        for part in [format, options] {
            hasher.write(&(part.len() as u64).to_le_bytes());
            hasher.write(part.as_bytes());
        }
        Self(hasher)
    }

    /// Adds bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Ends the hash.
    pub(crate) fn finish(&self) -> ContentHash {
        ContentHash(self.0.finish().to_le_bytes())
    }

    /// Hashes all bytes of a file.
    pub(crate) fn whole_file(mut self, path: &Path) -> Result<ContentHash, SourceError> {
        let unreadable = |error| SourceError::unreadable(path, error);
        let mut file = File::open(path).map_err(unreadable)?;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(self.finish()),
                Ok(read) => self.update(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(error)),
            }
        }
    }
}

/// A reader that hashes what is read through it.
#[derive(Debug)]
pub(crate) struct HashedRead<R> {
    input: R,
    hasher: ContentHasher,
}

impl<R> HashedRead<R> {
    /// Hashes what is read of `input`.
    pub(crate) const fn new(input: R, hasher: ContentHasher) -> Self {
        Self { input, hasher }
    }

    /// The hash of what was read so far.
    pub(crate) fn hash(&self) -> ContentHash {
        self.hasher.finish()
    }
}

impl<R: Read> Read for HashedRead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}

/// Reads the end of a file of `size` bytes: `least` bytes or [`TAIL_BYTES`], whichever is more, or all.
pub(crate) fn read_tail(file: &mut File, size: u64, least: u64) -> io::Result<Vec<u8>> {
    let length = least.max(TAIL_BYTES).min(size);
    let mut tail = vec![0; length as usize];
    file.seek(SeekFrom::Start(size - length))?;
    file.read_exact(&mut tail)?;
    Ok(tail)
}

/// Notices files whose content changed after their source was opened.
///
/// A file of another size is refused when it is opened. One of the same size that was written again is identified
/// again, once for each time that it was written.
#[derive(Debug, Default)]
pub(crate) struct ContentWatch {
    /// Times of change, by file, with which the content is known to be the old one.
    unchanged: Mutex<HashMap<usize, Option<i128>>>,
}

impl ContentWatch {
    /// Checks that a file is what it was when the source was opened; `identify` hashes it again.
    pub(crate) fn check(
        &self,
        place: &Place,
        identify: impl FnOnce(&Path) -> Result<ContentHash, SourceError>,
    ) -> Result<(), SourceError> {
        let modified = place.modified_now()?;
        if modified == place.modified {
            return Ok(());
        }
        let mut unchanged = { self.unchanged.lock() }.unwrap_or_else(PoisonError::into_inner);
        if unchanged.get(&place.file) == Some(&modified) {
            return Ok(());
        }
        if identify(&place.path)? != place.content {
            return Err(SourceError::Changed {
                path: place.path.clone(),
                change: FileChange::Content,
            });
        }
        unchanged.insert(place.file, modified);
        Ok(())
    }
}
