//! Row counts: the number of rows that each stored row gives, and their keys, known before any row is computed.

use super::count_index::CountIndex;
use super::shares::Share;
use crate::stream::group::GroupKey;

/// The number of rows that each stored row gives, and the group keys of these rows.
///
/// Under MIX, the rows that the inputs give are counted, even those that a filter above the MIX
/// drops: an input is drawn for each of them.
#[derive(Debug)]
pub(crate) struct RowCounts {
    given: CountIndex,
    /// Counts of the rows that reach the output; `None` if these are all rows.
    reached: Option<CountIndex>,
    /// Keys of the rows that reach the output, in stored order; empty if rows have no keys.
    keys: Vec<GroupKey>,
}

impl RowCounts {
    /// Combines consecutive shares that cover all stored rows.
    pub(super) fn of_shares(shares: Vec<Share>) -> Self {
        Self {
            given: CountIndex::of(shares.iter().map(|share| share.rows.as_slice())),
            reached: None,
            keys: shares.into_iter().flat_map(|share| share.keys).collect(),
        }
    }

    /// Creates the counts under a MIX whose inputs give `given`, if these are the counts of the rows
    /// that reach the output.
    pub(super) fn above_mix(self, given: CountIndex) -> Self {
        Self {
            given,
            reached: Some(self.given),
            keys: self.keys,
        }
    }

    /// Returns the counts of the rows that the inputs give.
    pub(super) fn into_given(self) -> CountIndex {
        self.given
    }

    /// Returns the number of rows that all stored rows give.
    pub(crate) fn total(&self) -> u64 {
        self.given.total()
    }

    /// Returns the number of rows that a stored row gives.
    pub(crate) fn of_row(&self, stored: u64) -> u32 {
        self.given.of_row(stored)
    }

    fn reached(&self) -> &CountIndex {
        self.reached.as_ref().unwrap_or(&self.given)
    }

    /// Returns true if a filter above a MIX drops the rows of a stored row.
    pub(crate) fn drops(&self, stored: u64) -> bool {
        self.given.of_row(stored) > 0 && self.reached().of_row(stored) == 0
    }

    /// Returns the key of the `nth` row that a stored row gives.
    pub(crate) fn key(&self, stored: u64, nth: u32) -> GroupKey {
        if self.keys.is_empty() {
            return GroupKey::default();
        }
        let at = self.reached().before(stored) + u64::from(nth);
        self.keys.get(at as usize).copied().unwrap_or_default()
    }
}
