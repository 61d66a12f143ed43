//! Blobs as streams of messages.

use bytes::Bytes;

use super::wire::BlobChunk;
use crate::engine::BlobHash;

/// Size of the pieces in which blobs travel, within the size of a message that servers accept.
pub(crate) const BLOB_CHUNK: usize = 1 << 20;

/// Cuts a blob into the messages in which it travels.
pub(crate) fn chunks(hash: BlobHash, blob: Bytes) -> impl Iterator<Item = BlobChunk> + Send {
    let pieces = blob.len().div_ceil(BLOB_CHUNK).max(1);
    (0..pieces).map(move |piece| {
        let start = piece * BLOB_CHUNK;
        let data = blob.slice(start..blob.len().min(start + BLOB_CHUNK));
        let hash = if piece == 0 {
            Bytes::copy_from_slice(hash.as_bytes())
        } else {
            Bytes::new()
        };
        BlobChunk {
            hash,
            size: blob.len() as u64,
            data,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_are_cut_into_chunks() {
        for length in [0, 1, BLOB_CHUNK, BLOB_CHUNK + 1, 3 * BLOB_CHUNK] {
            let blob = Bytes::from(vec![7; length]);
            let hash = BlobHash::of(&blob);
            let pieces: Vec<_> = chunks(hash, blob.clone()).collect();
            assert_eq!(pieces.len(), length.div_ceil(BLOB_CHUNK).max(1));
            assert_eq!(pieces[0].hash, &hash.as_bytes()[..]);
            assert!(pieces.iter().all(|piece| piece.size == length as u64));
            let joined: Vec<u8> = pieces
                .iter()
                .flat_map(|piece| piece.data.to_vec())
                .collect();
            assert_eq!(joined, blob);
        }
    }
}
