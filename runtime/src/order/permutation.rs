//! The order of a window's rows in a pass.

use std::ops::Range;

use datafusion::common::{Result, exec_err};
use forebay_planner::clauses::ShuffleWindow;
use forebay_udfs::hash::combine;

use super::hash_sort::{self, HashKey};
use super::row::StoredRow;
use super::row_bitmap::RowBitmap;
use super::snapshot::Snapshot;
use super::windows::WindowSplits;

/// Salt of the hashes that order rows. It makes these hashes independent of other hashes of the
/// same pass key.
const ROW_SALT: u64 = 0x726f_7773_0000_0001;
/// Memory that ordering needs per row at most, in bytes: the sort key, and the row itself.
pub(crate) const ORDER_BYTES: u64 = (size_of::<u128>() + size_of::<StoredRow>()) as u64;
/// Maximum number of bits that the places of a window's rows take in a short sort key. The other half of the key
/// tells nearly all rows apart.
const MAX_PLACE_BITS: u32 = 32;
/// Stored rows whose sort keys one thread generates at a time: few enough that the keys stay in the
/// thread's cache.
const CHUNK_ROWS: u32 = 1 << 16;

/// Returns the rows of `window` in the order of the pass with key `pass`. `kept` returns the rows
/// of a split that remain after pruning; `None` if all remain. Pruned rows are left out, which does
/// not change the order of the others.
///
/// # Errors
/// Fails if ordering the window's rows takes more than `limit` bytes. The number of rows comes from
/// file metadata, which may state any number.
pub(crate) fn order<'a>(
    snapshot: &Snapshot,
    window: &WindowSplits,
    shuffle: Option<ShuffleWindow>,
    pass: u64,
    limit: u64,
    kept: impl Fn(u32) -> Option<&'a RowBitmap> + Sync,
) -> Result<Vec<StoredRow>> {
    let rows_of = |&index: &u32| match kept(index) {
        Some(rows) => rows.len(),
        None => snapshot.splits[index as usize].rows,
    };
    let rows = window.splits.iter().map(rows_of).sum::<u64>();
    let minimum = rows.saturating_mul(ORDER_BYTES);
    if minimum > limit {
        return exec_err!(
            "a window has {rows} rows, and ordering them may take {minimum} bytes, more than the memory limit of \
             {limit}; raise the limit, shuffle within fewer rows, or write the files with smaller row groups"
        );
    }
    if rows >= u64::from(u32::MAX) {
        return exec_err!(
            "a window has {rows} rows, more than 4294967294; shuffle within fewer rows, or write the files with \
             smaller row groups"
        );
    }
    let mut ascending = window.splits.clone();
    ascending.sort_unstable();
    let parts = window.splits.iter().map(|&split| Part {
        split,
        nth: ascending.partition_point(|&other| other < split) as u32,
        // `Snapshot::try_new` refuses a split with more than `u32::MAX` rows.
        offsets: 0..snapshot.splits[split as usize].rows as u32,
    });
    if shuffle.is_none() {
        let mut ordered = Vec::with_capacity(rows as usize);
        for part in parts {
            part.each(kept(part.split), |row| ordered.push(row));
        }
        return Ok(ordered);
    }
    let chunks = chunks(parts);
    let longest = { window.splits.iter() }.map(|&s| snapshot.splits[s as usize].rows);
    let offset_bits = bits_below(longest.max().unwrap_or(0));
    let order = HashOrder {
        snapshot,
        salted: combine(pass, ROW_SALT),
        offset_bits,
        place_bits: offset_bits + bits_below(ascending.len() as u64),
        ascending,
        chunks,
        rows: rows as usize,
        kept,
    };
    Ok(if order.place_bits <= MAX_PLACE_BITS {
        order.by_short_keys()
    } else {
        order.by_long_keys()
    })
}

/// Returns the number of bits of the numbers below `end`.
const fn bits_below(end: u64) -> u32 {
    u64::BITS - end.saturating_sub(1).leading_zeros()
}

/// The order of a window's rows by the hashes of their keys. Rows with equal hashes are ordered by split and offset.
/// That is the order of the rows' keys (occurrence of the scan, path of the file, number of the row in the file).
struct HashOrder<'a, F> {
    snapshot: &'a Snapshot,
    /// Hash of the pass, from which the hashes of rows are derived.
    salted: u64,
    /// The splits of the window, ascending.
    ascending: Vec<u32>,
    /// Number of bits of an offset in a split.
    offset_bits: u32,
    /// Number of bits in which a short key holds the place of a row instead of its hash.
    place_bits: u32,
    chunks: Vec<Vec<Part>>,
    /// Number of rows of the chunks, without pruned ones.
    rows: usize,
    /// Returns the rows of a split that remain after pruning; `None` if all remain.
    kept: F,
}

impl<'a, F: Fn(u32) -> Option<&'a RowBitmap> + Sync> HashOrder<'_, F> {
    /// Sorts the rows by keys of 64 bits: the hash, whose last bits are replaced by the place.
    fn by_short_keys(&self) -> Vec<StoredRow> {
        let mask = (1 << self.place_bits) - 1;
        let key = |hash: u64, place: u64| hash & !mask | place;
        self.sorted(key, |keys| self.settle(keys), |key| key & mask)
    }

    /// Sorts the rows by keys of 128 bits: the hash, then the place. One integer is compared without
    /// branches, a pair with them.
    fn by_long_keys(&self) -> Vec<StoredRow> {
        let key = |hash: u64, place: u64| u128::from(hash) << 64 | u128::from(place);
        self.sorted(key, |_| (), |key| key as u64)
    }

    /// Sorts the rows by keys that `key` makes of hash and place. `settle` orders ascending keys anew,
    /// and `place` returns the place in a key.
    fn sorted<K: HashKey>(
        &self,
        key: impl Fn(u64, u64) -> K + Sync,
        settle: impl Fn(&mut [K]) + Sync,
        place: impl Fn(K) -> u64 + Sync,
    ) -> Vec<StoredRow> {
        let generate = |chunk: &Vec<Part>, keys: &mut Vec<K>| {
            for part in chunk {
                let split = &self.snapshot.splits[part.split as usize];
                let nth = u64::from(part.nth) << self.offset_bits;
                part.each((self.kept)(part.split), |row| {
                    let number = split.first_row + u64::from(row.offset);
                    let hash = self.hash(split.file, number);
                    keys.push(key(hash, nth | u64::from(row.offset)));
                });
            }
        };
        let row = |key| self.row(place(key));
        hash_sort::sort(&self.chunks, self.rows, generate, settle, row)
    }

    /// Orders ascending short keys that are equal but for their places by their whole hashes.
    fn settle(&self, keys: &mut [u64]) {
        let is_tie = |a: &u64, b: &u64| (a ^ b) >> self.place_bits == 0;
        if !keys.windows(2).any(|pair| is_tie(&pair[0], &pair[1])) {
            return;
        }
        let place = |key: u64| key & ((1 << self.place_bits) - 1);
        for tied in keys.chunk_by_mut(is_tie) {
            tied.sort_unstable_by_key(|&key| {
                let (file, number) = self.snapshot.number_in_file(self.row(place(key)));
                (self.hash(file, number), key)
            });
        }
    }

    /// Returns the hash of row `number` of a file.
    fn hash(&self, file: u32, number: u64) -> u64 {
        combine(self.salted, self.snapshot.row_hash(file, number))
    }

    /// Returns the row at `place`.
    fn row(&self, place: u64) -> StoredRow {
        StoredRow {
            split: self.ascending[(place >> self.offset_bits) as usize],
            offset: (place & ((1 << self.offset_bits) - 1)) as u32,
        }
    }
}

/// Consecutive offsets of a split.
#[derive(Debug, Clone)]
struct Part {
    split: u32,
    /// Index of the split among the window's splits, ascending.
    nth: u32,
    offsets: Range<u32>,
}

impl Part {
    /// Calls `each` with the rows of the part that are in `kept`, or with all rows if `kept` is
    /// `None`.
    fn each(&self, kept: Option<&RowBitmap>, mut each: impl FnMut(StoredRow)) {
        let split = self.split;
        let each = |offset| each(StoredRow { split, offset });
        match kept {
            Some(kept) => kept.offsets(self.offsets.clone()).for_each(each),
            None => self.offsets.clone().for_each(each),
        }
    }
}

/// Cuts and groups `parts` to chunks of at most [`CHUNK_ROWS`] offsets.
fn chunks(parts: impl Iterator<Item = Part>) -> Vec<Vec<Part>> {
    let (mut chunks, mut last, mut room) = (Vec::new(), Vec::new(), CHUNK_ROWS);
    for Part {
        split,
        nth,
        mut offsets,
    } in parts
    {
        while !offsets.is_empty() {
            let end = offsets.end.min(offsets.start.saturating_add(room));
            room -= end - offsets.start;
            last.push(Part {
                split,
                nth,
                offsets: offsets.start..end,
            });
            offsets.start = end;
            if room == 0 {
                chunks.push(std::mem::take(&mut last));
                room = CHUNK_ROWS;
            }
        }
    }
    chunks.push(last);
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::tests::snapshot;

    /// Short keys that hold few bits of the hash give the same order as long ones.
    #[test]
    fn rows_whose_short_keys_are_tied_are_in_the_order_of_their_hashes() {
        let snapshot = snapshot(&[&[70, 1, 3000], &[4], &[4000, 2120]], 0..u64::MAX);
        let window = [4, 0, 2, 5, 1, 3];
        let kept = RowBitmap::new((0..4000).filter(|offset| offset % 3 != 1));
        let kept = |split| (split == 4).then_some(&kept);
        let parts = window.map(|split| Part {
            split,
            nth: split,
            offsets: 0..snapshot.splits[split as usize].rows as u32,
        });
        let chunks = chunks(parts.into_iter());
        for place_bits in [15, 32, 58, 60, 62] {
            let order = HashOrder {
                snapshot: &snapshot,
                salted: 7,
                ascending: (0..6).collect(),
                offset_bits: 12,
                place_bits,
                chunks: chunks.clone(),
                rows: 9195 - 1333,
                kept,
            };
            let long = order.by_long_keys();
            assert_eq!(order.by_short_keys(), long);
            let key = |row: &StoredRow| {
                let (file, number) = snapshot.number_in_file(*row);
                (order.hash(file, number), row.split, row.offset)
            };
            assert!(long.is_sorted_by_key(key));
        }
    }

    /// Metadata may state so many rows that their places do not fit into a short key.
    #[test]
    fn windows_of_very_many_places_are_ordered_too() {
        let snapshot = snapshot(&[&[7, 1 << 31, 1 << 31]], 0..u64::MAX);
        let window = WindowSplits {
            splits: vec![1, 2, 0],
            rows: 7 + (1 << 32),
        };
        let few = RowBitmap::new(0..5);
        let shuffle = Some(ShuffleWindow::Global);
        let rows = order(&snapshot, &window, shuffle, 9, u64::MAX, |_| Some(&few)).unwrap();
        let salted = combine(9, ROW_SALT);
        let mut expected: Vec<StoredRow> = { 0..3 }
            .flat_map(|split| (0..5).map(move |offset| StoredRow { split, offset }))
            .collect();
        expected.sort_by_key(|&row| {
            let (file, number) = snapshot.number_in_file(row);
            combine(salted, snapshot.row_hash(file, number))
        });
        assert_eq!(rows, expected);
    }
}
