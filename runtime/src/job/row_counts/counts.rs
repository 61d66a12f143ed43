//! Row counts: the number of output rows per stored row, and the group keys of the output rows,
//! both counted before the output rows are computed.

use super::count_index::CountIndex;
use super::count_share::CountShare;
use crate::stream::group::GroupKey;

/// The number of output rows per stored row, and the group keys of the output rows.
///
/// Under MIX, all rows that the inputs yield are counted, even rows that a filter above the MIX
/// drops, because MIX draws an input for each of these rows.
#[derive(Debug)]
pub(crate) struct RowCounts {
    given: CountIndex,
    /// Counts of the rows that reach the output; `None` if all rows in `given` do.
    reached: Option<CountIndex>,
    /// Group keys of the rows that reach the output, in stored order; empty if rows have no group
    /// keys.
    keys: Vec<GroupKey>,
}

impl RowCounts {
    /// Combines `shares`, which are consecutive and together cover all stored rows.
    pub(super) fn of_shares(shares: Vec<CountShare>) -> Self {
        Self {
            given: CountIndex::of(shares.iter().map(|share| share.rows.as_slice())),
            reached: None,
            keys: shares.into_iter().flat_map(|share| share.keys).collect(),
        }
    }

    /// Turns counts of the rows that reach the output into the counts of a pipeline with MIX, in
    /// which `given` counts the rows that the inputs yield.
    pub(super) fn above_mix(self, given: CountIndex) -> Self {
        Self {
            given,
            reached: Some(self.given),
            keys: self.keys,
        }
    }

    /// Returns the counts of the rows that the inputs of the MIX yield.
    pub(super) fn into_given(self) -> CountIndex {
        self.given
    }

    /// Returns the total number of rows for all stored rows; under MIX, of rows that the inputs
    /// yield.
    pub(crate) fn total(&self) -> u64 {
        self.given.total()
    }

    /// Returns the number of rows for the stored row with number `stored`; under MIX, of rows that
    /// its input yields.
    pub(crate) fn of_row(&self, stored: u64) -> u32 {
        self.given.of_row(stored)
    }

    fn reached(&self) -> &CountIndex {
        self.reached.as_ref().unwrap_or(&self.given)
    }

    /// Returns true if a filter above a MIX drops all rows of the stored row with number `stored`.
    pub(crate) fn drops(&self, stored: u64) -> bool {
        let dropped = |reached: &CountIndex| reached.of_row(stored) == 0;
        self.reached.as_ref().is_some_and(dropped) && self.given.of_row(stored) > 0
    }

    /// Returns the group key of the `nth` output row of the stored row with number `stored`.
    pub(crate) fn key(&self, stored: u64, nth: u32) -> GroupKey {
        if self.keys.is_empty() {
            return GroupKey::default();
        }
        let at = self.reached().before(stored) + u64::from(nth);
        self.keys.get(at as usize).copied().unwrap_or_default()
    }
}
