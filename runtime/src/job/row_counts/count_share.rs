//! Shares of row counts: the counts of a range of stored rows.

use std::ops::Range;

use bytes::Buf;

use crate::order::Snapshot;
use crate::stream::group::GroupKey;

/// The counts of a range of stored rows: the number of output rows of each stored row, and the
/// group keys of these output rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CountShare {
    pub(crate) rows: Vec<u32>,
    pub(crate) keys: Vec<GroupKey>,
}

impl CountShare {
    /// Returns true if the share can be the count of `rows` stored rows: every output row has a key
    /// in one of `buckets` buckets, or there are no keys if `buckets` is `None`.
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

    /// Encodes the share: two lengths as 64-bit numbers, then the counts and keys as 32-bit numbers,
    /// all little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let lengths = [self.rows.len() as u64, self.keys.len() as u64];
        let mut bytes: Vec<u8> = lengths.iter().flat_map(|n| n.to_le_bytes()).collect();
        bytes.extend(self.rows.iter().flat_map(|n| n.to_le_bytes()));
        let keys = self.keys.iter().flat_map(|key| [key.length, key.bucket]);
        bytes.extend(keys.flat_map(u32::to_le_bytes));
        bytes
    }

    /// Decodes a share, which is untrusted input; `None` if `bytes` is no share.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let rows = usize::try_from(bytes.try_get_u64_le().ok()?).ok()?;
        let keys = usize::try_from(bytes.try_get_u64_le().ok()?).ok()?;
        if bytes.len() != rows.checked_add(keys.checked_mul(2)?)?.checked_mul(4)? {
            return None;
        }
        let mut number = || bytes.try_get_u32_le().ok();
        let counts = (0..rows).map(|_| number()).collect::<Option<_>>()?;
        let keys = (0..keys).map(|_| {
            Some(GroupKey {
                length: number()?,
                bucket: number()?,
            })
        });
        Some(Self {
            rows: counts,
            keys: keys.collect::<Option<_>>()?,
        })
    }
}

/// Divides the snapshot's splits into about `shares` ranges with about equally many stored rows.
/// Returns for each range its splits and its stored rows.
pub(super) fn ranges(snapshot: &Snapshot, shares: u64) -> Vec<(Range<u32>, Range<u64>)> {
    let least = snapshot.rows().div_ceil(shares.max(1)).max(1);
    let mut ranges = Vec::new();
    let (mut split, mut row) = (0, 0);
    for (at, of) in (1..).zip(&snapshot.splits) {
        let end = of.start + of.rows;
        if end - row >= least || at as usize == snapshot.splits.len() {
            ranges.push((split..at, row..end));
            (split, row) = (at, end);
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(range: Range<u64>) -> CountShare {
        let key = |n| GroupKey {
            length: n as u32,
            bucket: 1,
        };
        CountShare {
            rows: range.clone().map(|_| 1).collect(),
            keys: range.map(key).collect(),
        }
    }

    #[test]
    fn a_share_with_impossible_counts_is_refused() {
        assert!(share(0..5).is_of(5, Some(2)));
        assert!(!share(0..5).is_of(6, Some(2)));
        assert!(!share(0..5).is_of(5, Some(1)), "there is no bucket 1");
        assert!(!share(0..5).is_of(5, None));
        let mut missing = share(0..5);
        missing.keys.pop();
        assert!(!missing.is_of(5, Some(2)));
    }

    #[test]
    fn damaged_bytes_do_not_decode() {
        let bytes = share(0..5).to_bytes();
        assert_eq!(CountShare::from_bytes(&bytes), Some(share(0..5)));
        assert_eq!(CountShare::from_bytes(&bytes[..bytes.len() - 1]), None);
        let mut huge = bytes.clone();
        huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(CountShare::from_bytes(&huge), None);
        assert_eq!(CountShare::from_bytes(b""), None);
    }
}
