//! The order of a window's rows in a pass.

use datafusion::common::{Result, exec_err};
use forebay_planner::clauses::ShuffleWindow;
use forebay_udfs::hash::combine;

use super::row::StoredRow;
use super::row_bitmap::RowBitmap;
use super::snapshot::Snapshot;
use super::windows::WindowSplits;

/// Salt of the hashes that order rows. It makes these hashes independent of other hashes of the
/// same pass key.
const ROW_SALT: u64 = 0x726f_7773_0000_0001;
/// Memory that ordering needs per row, in bytes: the sort key, and the row itself.
pub(crate) const ORDER_BYTES: u64 = (size_of::<u128>() + size_of::<StoredRow>()) as u64;

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
    kept: impl Fn(u32) -> Option<&'a RowBitmap>,
) -> Result<Vec<StoredRow>> {
    let salted = combine(pass, ROW_SALT);
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
    // Hash, split and offset are packed into one integer, because two integers are compared without
    // branches.
    let mut keyed: Vec<u128> = Vec::with_capacity(rows as usize);
    for &index in &window.splits {
        let split = &snapshot.splits[index as usize];
        let mut add = |offset: u32| {
            let hash = match shuffle {
                Some(_) => snapshot.row_hash(split.file, split.first_row + u64::from(offset)),
                None => 0,
            };
            let hash = combine(salted, hash);
            let place = u64::from(index) << 32 | u64::from(offset);
            keyed.push(u128::from(hash) << 64 | u128::from(place));
        };
        match kept(index) {
            Some(rows) => rows.offsets().for_each(&mut add),
            // `Snapshot::try_new` refuses a split with more than `u32::MAX` rows.
            None => (0..split.rows as u32).for_each(&mut add),
        }
    }
    if shuffle.is_some() {
        // Rows with equal hashes are sorted by split and offset. That is the order of the rows'
        // keys (occurrence of the scan, path of the file, number of the row in the file).
        keyed.sort_unstable();
    }
    let rows = keyed.into_iter().map(|key| StoredRow {
        split: (key >> 32) as u32,
        offset: key as u32,
    });
    Ok(rows.collect())
}
