//! Parallel sorting of keys that begin with a hash.

use rayon::prelude::*;

/// Mean number of keys in a bucket. A bucket is sorted in the cache of one thread.
const BUCKET_KEYS: usize = 2048;
/// More buckets than this would make a chunk's part of each bucket shorter than a few cache lines.
const MAX_BUCKET_BITS: u32 = 11;

/// Generates the keys of each chunk, and returns all keys in ascending order, each converted by
/// `convert`. `rows` is the number of keys. Works on the threads of the current rayon pool.
///
/// The keys are distributed to buckets by their highest bits, which are those of a hash, so buckets
/// have about the same size; then each bucket is sorted alone (bucket sort: Knuth, "The Art of
/// Computer Programming", volume 3, section 5.2.5).
pub(super) fn sort<C: Sync, R: Copy + Default + Send>(
    chunks: &[C],
    rows: usize,
    generate: impl Fn(&C, &mut Vec<u128>) + Sync,
    convert: impl Fn(u128) -> R + Sync,
) -> Vec<R> {
    let bits = (rows / BUCKET_KEYS + 1).ilog2().min(MAX_BUCKET_BITS);
    let distributed: Vec<Distributed> = chunks
        .par_iter()
        .map_init(Vec::new, |keys, chunk| {
            keys.clear();
            generate(chunk, keys);
            Distributed::new(keys, bits)
        })
        .collect();
    let mut sorted = vec![R::default(); rows];
    let mut rest = &mut sorted[..];
    let mut buckets = Vec::with_capacity(1 << bits);
    for bucket in 0..1 << bits {
        let keys = distributed.iter().map(|of| of.bucket(bucket).len()).sum();
        let (first, others) = std::mem::take(&mut rest).split_at_mut(keys);
        buckets.push((bucket, first));
        rest = others;
    }
    buckets
        .into_par_iter()
        .for_each_init(Vec::new, |keys, (bucket, sorted)| {
            keys.clear();
            for of in &distributed {
                keys.extend_from_slice(of.bucket(bucket));
            }
            keys.sort_unstable();
            for (row, &key) in sorted.iter_mut().zip(&*keys) {
                *row = convert(key);
            }
        });
    sorted
}

/// The keys of a chunk, ordered by bucket.
struct Distributed {
    keys: Vec<u128>,
    /// Index of the first key of each bucket, and the number of keys.
    starts: Vec<u32>,
}

impl Distributed {
    fn new(keys: &[u128], bits: u32) -> Self {
        // A shift in two steps, since shifting all 128 bits at once is not defined.
        let bucket = |key: u128| (key >> 1 >> (127 - bits)) as usize;
        let mut starts = vec![0_u32; (1 << bits) + 1];
        for &key in keys {
            starts[bucket(key) + 1] += 1;
        }
        for bucket in 0..1 << bits {
            starts[bucket + 1] += starts[bucket];
        }
        let mut next = starts.clone();
        let mut by_bucket = vec![0; keys.len()];
        for &key in keys {
            let next = &mut next[bucket(key)];
            by_bucket[*next as usize] = key;
            *next += 1;
        }
        Self {
            keys: by_bucket,
            starts,
        }
    }

    fn bucket(&self, bucket: usize) -> &[u128] {
        &self.keys[self.starts[bucket] as usize..self.starts[bucket + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use forebay_udfs::hash::mix64;

    use super::*;

    #[test]
    fn keys_of_all_chunks_are_in_order() {
        for rows in [0, 1, 5, 4095, 4096, 40_000] {
            let key = |row: u64| u128::from(mix64(row % 9_000)) << 64 | u128::from(row);
            // Chunks of different sizes, the last of which may be empty.
            let chunks = [0..rows / 3, rows / 3..rows, rows..rows];
            let generate = |rows: &std::ops::Range<u64>, keys: &mut Vec<u128>| {
                keys.extend(rows.clone().map(key));
            };
            let mut expected: Vec<u128> = (0..rows).map(key).collect();
            expected.sort_unstable();
            assert_eq!(sort(&chunks, rows as usize, generate, |key| key), expected);
        }
    }
}
