//! Blobs in memory, by their hashes.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use crate::engine::BlobHash;

/// Blobs by hash, bounded in bytes. The one that was not used for longest makes room.
#[derive(Debug)]
pub(crate) struct BlobStore {
    capacity: usize,
    bytes: usize,
    /// The blobs, with the time of their last use.
    blobs: HashMap<BlobHash, (Bytes, u64)>,
    by_last_use: BTreeMap<u64, BlobHash>,
    clock: u64,
}

impl BlobStore {
    /// Creates an empty store of at most `capacity` bytes.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            bytes: 0,
            blobs: HashMap::new(),
            by_last_use: BTreeMap::new(),
            clock: 0,
        }
    }

    /// Stores `blob` under its `hash`. Returns `false` if it is larger than the store.
    pub(crate) fn insert(&mut self, hash: BlobHash, blob: Bytes) -> bool {
        if blob.len() > self.capacity {
            return false;
        }
        if self.get(hash).is_some() {
            return true;
        }
        while self.bytes + blob.len() > self.capacity && self.evict() {}
        self.clock += 1;
        self.bytes += blob.len();
        self.by_last_use.insert(self.clock, hash);
        self.blobs.insert(hash, (blob, self.clock));
        true
    }

    /// Returns the blob with `hash`, and marks it as used.
    pub(crate) fn get(&mut self, hash: BlobHash) -> Option<Bytes> {
        let (blob, last_use) = self.blobs.get_mut(&hash)?;
        self.clock += 1;
        self.by_last_use.remove(last_use);
        self.by_last_use.insert(self.clock, hash);
        *last_use = self.clock;
        Some(blob.clone())
    }

    /// Returns the number of blobs and their bytes.
    pub(crate) fn size(&self) -> (usize, u64) {
        (self.blobs.len(), self.bytes as u64)
    }

    /// Removes the blob that was not used for longest. Returns `false` if there is none.
    fn evict(&mut self) -> bool {
        let Some((_, hash)) = self.by_last_use.pop_first() else {
            return false;
        };
        if let Some((blob, _)) = self.blobs.remove(&hash) {
            self.bytes -= blob.len();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(byte: u8, length: usize) -> (BlobHash, Bytes) {
        let blob = Bytes::from(vec![byte; length]);
        (BlobHash::of(&blob), blob)
    }

    #[test]
    fn the_least_recently_used_blob_makes_room() {
        let mut store = BlobStore::new(100);
        let blobs = [blob(1, 40), blob(2, 40), blob(3, 40), blob(4, 100)];
        assert!(store.insert(blobs[0].0, blobs[0].1.clone()));
        assert!(store.insert(blobs[1].0, blobs[1].1.clone()));
        assert_eq!(store.get(blobs[0].0), Some(blobs[0].1.clone()));
        assert!(store.insert(blobs[2].0, blobs[2].1.clone()));
        assert_eq!(
            store.get(blobs[1].0),
            None,
            "it was used before the first one"
        );
        assert_eq!(store.get(blobs[0].0), Some(blobs[0].1.clone()));
        assert!(store.insert(blobs[3].0, blobs[3].1.clone()));
        assert_eq!(store.get(blobs[0].0), None);
        assert_eq!(store.get(blobs[2].0), None);
        assert_eq!(
            (store.bytes, store.blobs.len(), store.by_last_use.len()),
            (100, 1, 1)
        );
    }

    #[test]
    fn a_blob_that_cannot_fit_evicts_nothing() {
        let mut store = BlobStore::new(100);
        let (small, large) = (blob(1, 100), blob(2, 101));
        assert!(store.insert(small.0, small.1.clone()));
        assert!(!store.insert(large.0, large.1));
        assert_eq!(store.get(small.0), Some(small.1));
    }

    #[test]
    fn a_blob_is_stored_once() {
        let mut store = BlobStore::new(100);
        let (hash, blob) = blob(1, 60);
        assert!(store.insert(hash, blob.clone()) && store.insert(hash, blob));
        assert_eq!(store.bytes, 60);
    }
}
