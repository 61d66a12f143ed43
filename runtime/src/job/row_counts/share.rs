//! A share of the row counts, as counted by one rank.

use crate::stream::group::GroupKey;

/// The counts of a range of stored rows: the number of output rows that each stored row gives, and
/// the keys of these output rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Share {
    pub(crate) rows: Vec<u32>,
    pub(crate) keys: Vec<GroupKey>,
}

impl Share {
    /// Returns true if this can be the count of `rows` stored rows: there is a key in one of the
    /// buckets for each output row, or no key at all if `buckets` is `None`.
    pub(crate) fn is_of(&self, rows: u64, buckets: Option<usize>) -> bool {
        let given: u64 = self.rows.iter().map(|&rows| u64::from(rows)).sum();
        let keyed = match buckets {
            Some(buckets) => {
                self.keys.len() as u64 == given
                    && self.keys.iter().all(|key| (key.bucket as usize) < buckets)
            }
            None => self.keys.is_empty(),
        };
        self.rows.len() as u64 == rows && keyed
    }
}
