//! The order of an epoch: windows of splits, and the rows within a window.
//!
//! Both are functions of (snapshot, seed, epoch): splits are permuted by a hash, consecutive ones
//! form windows, and the rows of a window stand in the order of a hash of their keys. No statistics,
//! no filter and no thread count takes part.

use std::num::NonZeroU64;

use forebay_planner::clauses::Window;
use forebay_udfs::hash::combine;

use crate::snapshot::Snapshot;

/// Tells the order of splits from other uses of a pass key.
const SPLIT_SALT: u64 = 0x7370_6c69_7473_0001;
/// Tells the order of rows from other uses of a pass key.
const ROW_SALT: u64 = 0x726f_7773_0000_0001;
/// Stored rows that are read together where nothing is shuffled. It changes no order.
const UNSHUFFLED_ROWS: u64 = 8192;

/// Some splits whose rows are ordered among themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowSplits {
    /// Indices into the snapshot's splits, in the order of the epoch.
    pub splits: Vec<u32>,
    /// Stored rows.
    pub rows: u64,
    /// Position in the epoch of the window's first row.
    pub first_position: u64,
}

/// Cuts the snapshot into the windows of the pass with key `pass`.
///
/// Every window but the last has at least as many stored rows as asked for.
pub fn windows(snapshot: &Snapshot, shuffle: Option<Window>, pass: u64) -> Vec<WindowSplits> {
    let mut order: Vec<u32> = (0..snapshot.splits.len() as u32).collect();
    if shuffle.is_some() {
        let salted = combine(pass, SPLIT_SALT);
        order.sort_by_cached_key(|&index| {
            let split = &snapshot.splits[index as usize];
            (combine(salted, snapshot.split_hash(split)), index)
        });
    }
    let at_least = match shuffle {
        None => UNSHUFFLED_ROWS,
        Some(Window::Rows(rows)) => NonZeroU64::get(rows),
        Some(Window::Global) => u64::MAX,
    };
    let mut windows = Vec::new();
    let mut open = WindowSplits {
        splits: Vec::new(),
        rows: 0,
        first_position: 0,
    };
    for index in order {
        open.splits.push(index);
        open.rows += snapshot.splits[index as usize].rows;
        if open.rows >= at_least {
            let first_position = open.first_position + open.rows;
            let next = WindowSplits {
                splits: Vec::new(),
                rows: 0,
                first_position,
            };
            windows.push(std::mem::replace(&mut open, next));
        }
    }
    if open.rows > 0 {
        windows.push(open);
    }
    windows
}

/// A row to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Position in the epoch: greater than that of every row before it.
    pub position: u64,
    /// Index into the snapshot's splits.
    pub split: u32,
    /// Row of the split, counted from the first row that the snapshot has of it.
    pub offset: u32,
}

/// The rows of a window in the order of the pass. Of a split for which `kept` has row offsets (ascending), only
/// those are rows; leaving rows out changes nothing of the order of the others.
pub fn order<'a>(
    snapshot: &Snapshot,
    window: &WindowSplits,
    shuffle: Option<Window>,
    pass: u64,
    kept: impl Fn(u32) -> Option<&'a [u32]>,
) -> Vec<Place> {
    let salted = combine(pass, ROW_SALT);
    let mut keyed: Vec<(u64, u32, u32)> = Vec::new();
    for &index in &window.splits {
        let split = &snapshot.splits[index as usize];
        let mut add = |offset: u32| {
            let hash = match shuffle {
                Some(_) => snapshot.row_hash(split.file, split.first_row + u64::from(offset)),
                None => 0,
            };
            keyed.push((combine(salted, hash), index, offset));
        };
        match kept(index) {
            Some(offsets) => offsets.iter().copied().for_each(&mut add),
            // A snapshot has no split of more rows than u32 counts.
            None => (0..split.rows as u32).for_each(&mut add),
        }
    }
    if shuffle.is_some() {
        // Equal hashes are ordered by key: stored order is the order of (occurrence, path, row).
        keyed.sort_unstable();
    }
    let positions = window.first_position..;
    positions
        .zip(keyed)
        .map(|(position, (_, split, offset))| Place {
            position,
            split,
            offset,
        })
        .collect()
}
