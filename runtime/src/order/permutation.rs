//! The order of a window's rows in a pass.

use std::ops::Range;

use datafusion::common::{Result, exec_err};
use forebay_planner::clauses::ShuffleWindow;
use forebay_udfs::hash::combine;

use super::hash_sort;
use super::row::StoredRow;
use super::row_bitmap::RowBitmap;
use super::snapshot::Snapshot;
use super::windows::WindowSplits;

/// Salt of the hashes that order rows. It makes these hashes independent of other hashes of the
/// same pass key.
const ROW_SALT: u64 = 0x726f_7773_0000_0001;
/// Memory that ordering needs per row, in bytes: the sort key, and the row itself.
pub(crate) const ORDER_BYTES: u64 = (size_of::<u128>() + size_of::<StoredRow>()) as u64;
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
            "a window has {rows} rows, and ordering them takes {minimum} bytes, more than the memory limit of \
             {limit}; raise the limit, shuffle within fewer rows, or write the files with smaller row groups"
        );
    }
    if rows >= u64::from(u32::MAX) {
        return exec_err!(
            "a window has {rows} rows, more than 4294967294; shuffle within fewer rows, or write the files with \
             smaller row groups"
        );
    }
    let parts = window.splits.iter().map(|&split| Part {
        split,
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
    let salted = combine(pass, ROW_SALT);
    let generate = |chunk: &Vec<Part>, keys: &mut Vec<u128>| {
        for part in chunk {
            let split = &snapshot.splits[part.split as usize];
            part.each(kept(part.split), |row| {
                let number = split.first_row + u64::from(row.offset);
                let hash = combine(salted, snapshot.row_hash(split.file, number));
                // Hash, split and offset are packed into one integer, because two integers are
                // compared without branches. Rows with equal hashes are sorted by split and offset.
                // That is the order of the rows' keys (occurrence of the scan, path of the file,
                // number of the row in the file).
                let place = u64::from(row.split) << 32 | u64::from(row.offset);
                keys.push(u128::from(hash) << 64 | u128::from(place));
            });
        }
    };
    Ok(hash_sort::sort(
        &chunks(parts),
        rows as usize,
        generate,
        |key| StoredRow {
            split: (key >> 32) as u32,
            offset: key as u32,
        },
    ))
}

/// Consecutive offsets of a split.
#[derive(Debug, Clone)]
struct Part {
    split: u32,
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
    for Part { split, mut offsets } in parts {
        while !offsets.is_empty() {
            let end = offsets.end.min(offsets.start.saturating_add(room));
            room -= end - offsets.start;
            last.push(Part {
                split,
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
