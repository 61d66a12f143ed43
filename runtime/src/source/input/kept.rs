//! Bytes of an object that were fetched before they are read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::objects::{Object, StoreError, parts};

/// Maximum number of bytes that are kept in memory. More bytes, such as those of a large row group,
/// go to a temporary file.
const MAX_MEMORY_BYTES: u64 = 64 << 20;

/// Fetched ranges of an object, which do not overlap.
#[derive(Debug)]
pub(crate) struct KeptBytes {
    /// The pieces, by their start in the object.
    pieces: BTreeMap<u64, Piece>,
    /// The temporary file, which has no name; `None` when all pieces are in memory.
    file: Option<Mutex<File>>,
}

#[derive(Debug)]
enum Piece {
    Memory(Bytes),
    /// Start in the temporary file, and length.
    Stored(u64, u64),
}

impl Piece {
    const fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Stored(_, length) => *length,
        }
    }
}

impl KeptBytes {
    /// Fetches `ranges` of `object`. Ranges that are close together share a request.
    pub(crate) async fn fetch(object: &Object, ranges: &[Range<u64>]) -> Result<Self, StoreError> {
        let parts = parts(ranges);
        // The gaps between ranges that share a request are kept, too.
        let bytes: u64 = parts.iter().map(|part| part.end - part.start).sum();
        let mut pieces = BTreeMap::new();
        if bytes <= MAX_MEMORY_BYTES {
            let keep = |start, bytes| {
                pieces.insert(start, Piece::Memory(bytes));
                Ok(())
            };
            object.read_parts(parts, keep).await?;
            return Ok(Self { pieces, file: None });
        }
        let mut file: Option<File> = None;
        let mut end = 0;
        let store = |start, bytes: Bytes| {
            let file = match &mut file {
                Some(file) => file,
                none => none.insert(tempfile::tempfile()?),
            };
            file.write_all(&bytes)?;
            let length = bytes.len() as u64;
            pieces.insert(start, Piece::Stored(end, length));
            end += length;
            Ok(())
        };
        object.read_parts(parts, store).await?;
        Ok(Self {
            pieces,
            file: file.map(Mutex::new),
        })
    }

    /// True when all bytes of `range` were fetched.
    pub(super) fn has(&self, range: &Range<u64>) -> bool {
        let mut at = range.start;
        while at < range.end {
            let piece = self.pieces.range(..=at).next_back();
            let end = piece.map_or(0, |(start, piece)| start + piece.len());
            if end <= at {
                return false;
            }
            at = end;
        }
        true
    }

    /// Returns the bytes from `start` up to the end of their piece, at most `length`; `None` if the
    /// byte at `start` was not fetched.
    pub(super) fn read(&self, start: u64, length: u64) -> io::Result<Option<Bytes>> {
        let Some((first, piece)) = self.pieces.range(..=start).next_back() else {
            return Ok(None);
        };
        let skip = start - first;
        if skip >= piece.len() {
            return Ok(None);
        }
        let length = length.min(piece.len() - skip);
        match (piece, &self.file) {
            (Piece::Memory(bytes), _) => {
                let skip = skip as usize;
                Ok(Some(bytes.slice(skip..skip + length as usize)))
            }
            (Piece::Stored(at, _), Some(file)) => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let mut bytes = vec![0; length as usize];
                file.seek(SeekFrom::Start(at + skip))?;
                file.read_exact(&mut bytes)?;
                Ok(Some(bytes.into()))
            }
            (Piece::Stored(..), None) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::recorded;

    #[tokio::test]
    async fn gaps_count_as_bytes_in_memory() {
        let size = MAX_MEMORY_BYTES + (1 << 20);
        let (_, store) = recorded(&[("o", &vec![0; size as usize])]).await;
        let object = store.object("o").await;
        // One byte of each 128 KiB, so that all is fetched.
        let few: Vec<_> = { (0..size).step_by(128 << 10) }
            .map(|at| at..at + 1)
            .collect();
        let kept = KeptBytes::fetch(&object, &few).await.unwrap();
        assert!(kept.file.is_some());
        assert!(kept.has(&(0..MAX_MEMORY_BYTES)));
        let kept = KeptBytes::fetch(&object, &few[..500]).await.unwrap();
        assert!(kept.file.is_none());
    }
}
