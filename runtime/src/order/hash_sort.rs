//! Parallel sorting of keys that begin with a hash.

use std::ops::Range;

use rayon::prelude::*;

/// Mean number of keys in a bucket. A bucket is sorted in the cache of one thread.
const BUCKET_KEYS: usize = 2048;
/// More buckets than this would make a chunk's part of each bucket shorter than a few cache lines.
const MAX_BUCKET_BITS: u32 = 11;

/// Number of keys in the largest part of a bucket up to which one insertion pass sorts the bucket quickest.
const MAX_INSERTED_KEYS: u32 = 20;

/// A key that begins with a hash.
pub(super) trait HashKey: Copy + Default + Ord + Send + Sync {
    /// Returns the `bits` bits that follow the highest `skipped` ones.
    fn digits(self, skipped: u32, bits: u32) -> usize;
}

// Shifts in two steps, since shifting all bits at once is not defined.
impl HashKey for u64 {
    fn digits(self, skipped: u32, bits: u32) -> usize {
        (self << skipped >> 1 >> (63 - bits)) as usize
    }
}

impl HashKey for u128 {
    fn digits(self, skipped: u32, bits: u32) -> usize {
        (self << skipped >> 1 >> (127 - bits)) as usize
    }
}

/// Generates the keys of each chunk, and returns all keys in ascending order, each converted by
/// `convert`. `rows` is the number of keys. `settle` gets ascending keys, of which those that are equal in
/// their first 32 bits are in the same call, and may order them anew. Works on the threads of the current rayon pool.
///
/// The keys are distributed to buckets by their highest bits, which are those of a hash, so buckets
/// have about the same size; then each bucket is distributed again, to about as many buckets as it has
/// keys (bucket sort: Knuth, "The Art of Computer Programming", volume 3, section 5.2.5).
pub(super) fn sort<C: Sync, K: HashKey, R: Copy + Default + Send>(
    chunks: &[C],
    rows: usize,
    generate: impl Fn(&C, &mut Vec<K>) + Sync,
    settle: impl Fn(&mut [K]) + Sync,
    convert: impl Fn(K) -> R + Sync,
) -> Vec<R> {
    let bits = (rows / BUCKET_KEYS + 1).ilog2().min(MAX_BUCKET_BITS);
    let distributed: Vec<Buckets<K>> = chunks
        .par_iter()
        .map_init(Vec::new, |keys, chunk| {
            keys.clear();
            generate(chunk, keys);
            let mut buckets = Buckets::default();
            buckets.fill(keys, 0, bits);
            buckets
        })
        .collect();
    let mut sorted = vec![R::default(); rows];
    let mut rest = &mut sorted[..];
    let mut buckets = Vec::with_capacity(1 << bits);
    for bucket in 0..1 << bits {
        let keys = distributed.iter().map(|of| of.range(bucket).len()).sum();
        let (first, others) = std::mem::take(&mut rest).split_at_mut(keys);
        buckets.push((bucket, first));
        rest = others;
    }
    buckets.into_par_iter().for_each_init(
        Default::default,
        |(keys, parts): &mut (Vec<K>, Buckets<K>), (bucket, sorted)| {
            keys.clear();
            for of in &distributed {
                keys.extend_from_slice(&of.keys[of.range(bucket)]);
            }
            let part_bits = (keys.len() + 1).ilog2();
            if parts.fill(keys, bits, part_bits) <= MAX_INSERTED_KEYS {
                insertion_sort(&mut parts.keys);
            } else {
                parts.keys.sort_unstable();
            }
            settle(&mut parts.keys);
            for (row, &key) in sorted.iter_mut().zip(&parts.keys) {
                *row = convert(key);
            }
        },
    );
    sorted
}

/// Keys, ordered by bucket.
#[derive(Default)]
struct Buckets<K> {
    keys: Vec<K>,
    /// Index after the last key of each bucket.
    ends: Vec<u32>,
}

impl<K: HashKey> Buckets<K> {
    /// Replaces the keys with `keys`, distributed by the `bits` bits that follow the highest `skipped`
    /// ones. Returns the number of keys in the largest bucket.
    fn fill(&mut self, keys: &[K], skipped: u32, bits: u32) -> u32 {
        let bucket = |key: K| key.digits(skipped, bits);
        let starts = &mut self.ends;
        starts.clear();
        starts.resize(1 << bits, 0);
        for &key in keys {
            starts[bucket(key)] += 1;
        }
        let (mut before, mut largest) = (0, 0);
        for start in &mut *starts {
            let count = std::mem::replace(start, before);
            before += count;
            largest = largest.max(count);
        }
        self.keys.clear();
        self.keys.resize(keys.len(), K::default());
        // Each start moves to the end of its bucket.
        for &key in keys {
            let next = &mut starts[bucket(key)];
            self.keys[*next as usize] = key;
            *next += 1;
        }
        largest
    }

    /// Returns the indices of the keys of a bucket.
    fn range(&self, bucket: usize) -> Range<usize> {
        let start = bucket.checked_sub(1).map_or(0, |before| self.ends[before]);
        start as usize..self.ends[bucket] as usize
    }
}

/// Sorts `keys`, each of which is at most a few places away from its place in the order. One pass over the keys of
/// all parts takes less time than a call for each part.
fn insertion_sort<K: Copy + Ord>(keys: &mut [K]) {
    for at in 1..keys.len() {
        let key = keys[at];
        let mut to = at;
        while to > 0 && key < keys[to - 1] {
            keys[to] = keys[to - 1];
            to -= 1;
        }
        keys[to] = key;
    }
}

#[cfg(test)]
mod tests {
    use forebay_udfs::hash::mix64;

    use super::*;

    #[test]
    fn keys_of_one_bucket_are_in_order() {
        // Hashes that are equal in their highest bits, or in all.
        for shift in [1, 20, 63] {
            let key = |row: u64| u128::from(mix64(row) >> shift) << 64 | u128::from(row % 5_000);
            let generate = |chunk: &u64, keys: &mut Vec<u128>| {
                keys.extend((0..3_000).map(|row| key(chunk * 3_000 + row)));
            };
            let mut expected: Vec<u128> = (0..9_000).map(key).collect();
            expected.sort_unstable();
            let sorted = sort(&[0, 1, 2], 9_000, generate, |_| (), |key| key);
            assert_eq!(sorted, expected);
        }
    }

    #[test]
    fn keys_of_all_chunks_are_in_order() {
        for rows in [0, 1, 5, 4095, 4096, 40_000] {
            let key = |row: u64| u128::from(mix64(row % 9_000)) << 64 | u128::from(row);
            // Chunks of different sizes, the last of which may be empty.
            let chunks = [0..rows / 3, rows / 3..rows, rows..rows];
            let generate = |rows: &Range<u64>, keys: &mut Vec<u128>| {
                keys.extend(rows.clone().map(key));
            };
            let mut expected: Vec<u128> = (0..rows).map(key).collect();
            expected.sort_unstable();
            let sorted = sort(&chunks, rows as usize, generate, |_| (), |key| key);
            assert_eq!(sorted, expected);
        }
    }
}
