//! Windows: groups of a pass's splits. The splits are permuted and then cut into groups, and the
//! rows of each group are shuffled among themselves.

use std::num::NonZeroU64;

use forebay_planner::clauses::ShuffleWindow;
use forebay_udfs::hash::combine;

use super::snapshot::Snapshot;

/// Salt of the hashes that order splits. It makes these hashes independent of other hashes of the
/// same pass key.
const SPLIT_SALT: u64 = 0x7370_6c69_7473_0001;
/// Minimum number of stored rows in a window without SHUFFLE. Changing the number requires a new
/// version of the canonical texts, because horizons and resume tokens count windows.
const UNSHUFFLED_ROWS: u64 = 8192;

/// The splits of one window, whose rows are ordered together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WindowSplits {
    /// Indices into the snapshot's splits, in the order of the pass.
    pub splits: Vec<u32>,
    /// Number of stored rows in the splits.
    pub rows: u64,
}

/// Returns the windows of the pass with key `pass` over `splits`, which are indices into the
/// snapshot's splits in stored order.
///
/// Every window except the last has at least as many stored rows as the SHUFFLE clause specifies,
/// or `UNSHUFFLED_ROWS` without SHUFFLE.
pub(crate) fn windows(
    snapshot: &Snapshot,
    splits: impl IntoIterator<Item = u32>,
    shuffle: Option<ShuffleWindow>,
    pass: u64,
) -> Vec<WindowSplits> {
    let mut order: Vec<u32> = splits.into_iter().collect();
    if shuffle.is_some() {
        let salted = combine(pass, SPLIT_SALT);
        order.sort_by_cached_key(|&index| {
            let split = &snapshot.splits[index as usize];
            (combine(salted, snapshot.split_hash(split)), index)
        });
    }
    let at_least = match shuffle {
        None => UNSHUFFLED_ROWS,
        Some(ShuffleWindow::Rows(rows)) => NonZeroU64::get(rows),
        Some(ShuffleWindow::Global) => u64::MAX,
    };
    let mut windows = Vec::new();
    let mut open = WindowSplits::default();
    for index in order {
        open.splits.push(index);
        open.rows += snapshot.splits[index as usize].rows;
        if open.rows >= at_least {
            windows.push(std::mem::take(&mut open));
        }
    }
    if open.rows > 0 {
        windows.push(open);
    }
    windows
}
