//! Seek indexes of JPEG files, which let later epochs jump to the regions that they decode.
//!
//! Without an index, the coded data of a photo has to be read from its beginning up to the end of
//! the region. An index takes about 2 % of the file's bytes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_jpeg::{JpegHeader, SeekIndex};

/// Number of parts of the store, each with a lock.
const SHARDS: usize = 64;
/// Memory of an entry beside the bytes of its index: key, pointer, and the table's free places.
const ENTRY_BYTES: u64 = 64;
/// Largest size of an index in bytes. Only photos of more than a hundred megapixels have a larger one.
const MAX_INDEX_BYTES: usize = 1 << 20;

/// The first half of the BLAKE3 hash of a file. Files with the same hash cannot be made on purpose,
/// so an index is never that of another file.
type FileDigest = [u8; 16];

/// The seek indexes that a process keeps, by the content of their files.
#[derive(Debug)]
pub struct SeekIndexStore {
    shards: [Mutex<HashMap<FileDigest, Arc<[u8]>>>; SHARDS],
    bytes: AtomicU64,
}

impl Default for SeekIndexStore {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            bytes: AtomicU64::default(),
        }
    }
}

impl SeekIndexStore {
    /// Returns the memory that the store takes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Locks the part of the store that a file belongs to.
    fn shard(&self, digest: &FileDigest) -> MutexGuard<'_, HashMap<FileDigest, Arc<[u8]>>> {
        let shard = self.shards[digest[0] as usize % SHARDS].lock();
        shard.unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the index of a file, unless a longer one is kept, or the store would take more than
    /// `limit` bytes.
    ///
    /// Epochs read all files again in another order, so an index that is kept for good serves them
    /// better than one that replaces another.
    fn keep(&self, digest: FileDigest, index: Arc<[u8]>, limit: u64) {
        let mut shard = self.shard(&digest);
        let known = shard.get(&digest).map_or(0, |known| known.len());
        // Points are only appended, so the longer index of a file has all points of the shorter one.
        if known >= index.len() || index.len() > MAX_INDEX_BYTES {
            return;
        }
        let entry = if known == 0 { ENTRY_BYTES } else { 0 };
        let more = (index.len() - known) as u64 + entry;
        if self.bytes().saturating_add(more) <= limit {
            shard.insert(digest, index);
            self.bytes.fetch_add(more, Ordering::Relaxed);
        }
    }
}

/// The use that a job makes of a [`SeekIndexStore`].
#[derive(Debug, Clone)]
pub struct SeekIndexAccess {
    store: Arc<SeekIndexStore>,
    limit: u64,
    records: bool,
}

impl SeekIndexAccess {
    /// Gives a job access to `store`. `records` is true for a job whose rows are read in other epochs, too: it
    /// keeps indexes while the store takes at most `limit` bytes.
    pub const fn new(store: Arc<SeekIndexStore>, limit: u64, records: bool) -> Self {
        Self {
            store,
            limit,
            records,
        }
    }

    /// Returns the memory that the indexes of all jobs of the store take, in bytes.
    pub fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// Opens the index to decode a region of `file` with: the one that is kept, or an empty one if
    /// it may be kept; otherwise `None`. The memory of `index` is used.
    pub(crate) fn open<'a>(
        &'a self,
        file: &[u8],
        header: &JpegHeader,
        index: &'a mut SeekIndex,
    ) -> Option<OpenSeekIndex<'a>> {
        let records = self.records && self.store.bytes() < self.limit;
        if !records && self.store.bytes() == 0 {
            return None;
        }
        // Files that cannot have an index are not hashed.
        if !index.reset(header) {
            return None;
        }
        let mut digest = FileDigest::default();
        digest.copy_from_slice(&blake3::hash(file).as_bytes()[..16]);
        let kept = self.store.shard(&digest).get(&digest).cloned();
        let is_kept = kept.is_some_and(|kept| index.load(header, &kept).is_ok());
        let is_open = is_kept || records && index.reset(header);
        is_open.then(|| OpenSeekIndex {
            access: self,
            digest,
            known: index.points(),
            index,
        })
    }
}

/// The index of a file that is being decoded.
#[derive(Debug)]
pub(crate) struct OpenSeekIndex<'a> {
    access: &'a SeekIndexAccess,
    digest: FileDigest,
    /// Number of points that are kept.
    known: usize,
    pub(crate) index: &'a mut SeekIndex,
}

impl OpenSeekIndex<'_> {
    /// Keeps the index if it has grown.
    pub(crate) fn close(self) {
        let access = self.access;
        if access.records && self.index.points() > self.known {
            let bytes = self.index.to_bytes().into();
            access.store.keep(self.digest, bytes, access.limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(bytes: usize) -> Arc<[u8]> {
        vec![0; bytes].into()
    }

    #[test]
    fn a_full_store_keeps_what_it_has() {
        let store = SeekIndexStore::default();
        store.keep([1; 16], index(100), 400);
        store.keep([2; 16], index(100), 400);
        assert_eq!(store.bytes(), 2 * (100 + ENTRY_BYTES));
        store.keep([3; 16], index(100), 400);
        assert!(store.shard(&[3; 16]).is_empty());
        // An index that grows replaces itself, as far as there is room.
        store.keep([1; 16], index(160), 400);
        assert_eq!(store.bytes(), 260 + 2 * ENTRY_BYTES);
        store.keep([1; 16], index(200), 400);
        assert_eq!(store.shard(&[1; 16])[&[1; 16]].len(), 160);
        store.keep([4; 16], index(MAX_INDEX_BYTES + 1), u64::MAX);
        assert!(store.shard(&[4; 16]).is_empty());
    }

    #[test]
    fn a_shorter_index_replaces_none() {
        let store = SeekIndexStore::default();
        store.keep([1; 16], index(100), 400);
        store.keep([1; 16], index(50), 400);
        assert_eq!(store.shard(&[1; 16])[&[1; 16]].len(), 100);
        assert_eq!(store.bytes(), 100 + ENTRY_BYTES);
    }
}
