//! The first photos that are read from an object store, until they are read again.
//!
//! Planning reads a sample of the photos. With it kept, the run that follows requests each photo
//! once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Maximum size in bytes of the photos that a source keeps. It exceeds the size of a sample.
const MAX_BYTES: usize = 16 << 20;

/// The photos that were read first.
#[derive(Debug)]
pub(super) struct FirstReads(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    /// Number of bytes that may still be kept. It is not raised when a photo is taken out, so only
    /// the first photos are kept.
    room: usize,
    /// Photos by the index of their file.
    photos: HashMap<usize, Bytes>,
}

impl Default for FirstReads {
    fn default() -> Self {
        Self(Mutex::new(Kept {
            room: MAX_BYTES,
            photos: HashMap::new(),
        }))
    }
}

impl FirstReads {
    /// Takes the bytes of a photo that was kept.
    pub(super) fn take(&self, file: usize) -> Option<Bytes> {
        self.lock().photos.remove(&file)
    }

    /// Keeps a copy of the bytes of a photo, if there is room.
    pub(super) fn keep(&self, file: usize, bytes: &[u8]) {
        let mut kept = self.lock();
        match kept.room.checked_sub(bytes.len()) {
            Some(room) => {
                kept.room = room;
                kept.photos.insert(file, Bytes::copy_from_slice(bytes));
            }
            None => kept.room = 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_photos_are_kept_and_each_is_taken_once() {
        let first = FirstReads::default();
        first.keep(1, b"one");
        first.keep(2, &vec![0; MAX_BYTES - 3]);
        first.keep(3, b"x");
        assert_eq!(first.take(1).as_deref(), Some(b"one".as_slice()));
        assert_eq!(first.take(1), None);
        first.keep(1, b"x");
        assert_eq!((first.take(1), first.take(3)), (None, None));
        assert_eq!(first.take(2).map(|photo| photo.len()), Some(MAX_BYTES - 3));
    }
}
