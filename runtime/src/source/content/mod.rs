//! Identity of a file's content: a hash of the bytes that opening the source reads from the file.
//!
//! | Format | Bytes |
//! |---|---|
//! | CSV, JSON lines | all |
//! | Parquet | the footer and the end of the file, [`TAIL_BYTES`] at least |
//! | Arrow IPC | as for Parquet, and the header of each record batch |
//! | Avro | the header, and the row count and length of each block |
//! | WEBDATASET | the headers of all entries and the end of the file; all of a compressed shard |
//! | image folders | none |
//!
//! No bytes are read for the identity alone, except at the end of a file: footers are small, so a
//! footer is read together with the bytes in front of it. A Parquet, Arrow or tar file smaller than
//! [`TAIL_BYTES`] is identified by all of its bytes.

#[cfg(test)]
mod tests;

use std::hash::Hasher;
use std::io::{self, Read};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash64;

use super::error::SourceError;
use super::input::{Input, InputFile};

/// Minimum number of bytes at the end of a Parquet or Arrow file that its hash covers. A larger
/// footer is covered whole.
pub(crate) const TAIL_BYTES: u64 = 64 << 10;

const READ_BYTES: usize = 256 << 10;

/// Hash of a file's content and of the options by which the file is read. The hash is XXH64, which
/// takes less than half of the time of BLAKE3 over a whole file. It detects accidental changes, not
/// forgeries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContentHash([u8; 8]);

impl ContentHash {
    /// Returns the hash as bytes.
    pub const fn bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

/// Computes a [`ContentHash`].
#[derive(Debug, Clone)]
pub(crate) struct ContentHasher(XxHash64);

impl ContentHasher {
    /// Begins the hash of a file of the format `format`. `options` is the text of the options that
    /// decide the file's rows.
    pub(crate) fn new(format: &str, options: &str) -> Self {
        let mut hasher = XxHash64::with_seed(0);
        for part in [format, options] {
            hasher.write(&(part.len() as u64).to_le_bytes());
            hasher.write(part.as_bytes());
        }
        Self(hasher)
    }

    /// Adds bytes to the hash.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Returns the hash of the bytes added so far.
    pub(crate) fn finish(&self) -> ContentHash {
        ContentHash(self.0.finish().to_le_bytes())
    }

    /// Adds all bytes of a file and returns the hash.
    pub(crate) fn whole_file(mut self, file: &InputFile) -> Result<ContentHash, SourceError> {
        let unreadable = |error| SourceError::unreadable(&file.name(), error);
        let (mut file, size) = file.open()?;
        file.read_only(0..size).map_err(unreadable)?;
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

/// A reader that hashes the bytes read through it.
#[derive(Debug)]
pub(crate) struct HashedRead<R> {
    input: R,
    hasher: ContentHasher,
}

impl<R> HashedRead<R> {
    /// Creates a reader of `input` that adds all bytes read to `hasher`.
    pub(crate) const fn new(input: R, hasher: ContentHasher) -> Self {
        Self { input, hasher }
    }

    /// Returns the hash of the bytes read so far.
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

/// Reads the last bytes of a file of `size` bytes. The number of bytes is the larger of `least` and
/// [`TAIL_BYTES`], but at most `size`.
pub(crate) fn read_tail(file: &mut Input, size: u64, least: u64) -> io::Result<Bytes> {
    let length = least.max(TAIL_BYTES).min(size);
    file.read_at(size - length, length)
}

/// Reads as [`read_tail`] does, where `tail` is what a call with a smaller `least` returned.
pub(crate) fn extend_tail(
    file: &mut Input,
    size: u64,
    least: u64,
    tail: Bytes,
) -> io::Result<Bytes> {
    let missing = least.min(size).saturating_sub(tail.len() as u64);
    if missing == 0 {
        return Ok(tail);
    }
    let start = size - tail.len() as u64 - missing;
    let front = file.read_at(start, missing)?;
    Ok([front, tail].concat().into())
}
