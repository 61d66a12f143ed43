//! Counting by several ranks: each rank counts some shares of the stored rows, writes them to a
//! common folder, and reads the other ranks' counts. Later runs over the same data reuse all of
//! them.
//!
//! A rank claims a share by locking its file. The system releases the lock if the process dies, so another rank then
//! counts the share. A file's name contains the range of rows, because another number of ranks cuts the rows
//! differently, and the checksum of its contents; a damaged file is counted again.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use datafusion::common::{DataFusionError, Result, exec_datafusion_err};

use super::share::Share;
use crate::output_file::NewFile;
use crate::stream::group::GroupKey;

/// Pause between two checks of what other ranks have counted.
const PAUSE: Duration = Duration::from_millis(20);
/// Number of checks after which the rank logs what it is waiting for; they take ten seconds.
const NOTE: u32 = 500;

/// A folder through which ranks share counts.
#[derive(Debug)]
pub(crate) struct Shares {
    folder: PathBuf,
    /// Number of buckets of the rows' keys; `None` if rows have no keys.
    buckets: Option<usize>,
}

impl Shares {
    /// Opens the shares of the count that `name` identifies, below `folder`.
    pub(crate) fn new(folder: &Path, name: &str, buckets: Option<usize>) -> Self {
        Self {
            folder: folder.join(name),
            buckets,
        }
    }

    /// Returns the counts of all ranges of stored rows. This rank counts the ranges that no rank
    /// has counted, beginning with `first`; other ranks may count at the same time.
    pub(crate) async fn all<F: Future<Output = Result<Share>>>(
        &self,
        ranges: &[Range<u64>],
        first: usize,
        mut count: impl FnMut(Range<u64>) -> F,
    ) -> Result<Vec<Share>> {
        std::fs::create_dir_all(&self.folder).map_err(|why| self.failed(&why))?;
        let mut found: Vec<Option<Share>> = vec![None; ranges.len()];
        let mut looks = 0_u32;
        loop {
            let mut waits = false;
            for nth in 0..ranges.len() {
                let nth = (first + nth) % ranges.len();
                if found[nth].is_some() {
                    continue;
                }
                let range = &ranges[nth];
                found[nth] = self.read(range);
                if found[nth].is_some() {
                    continue;
                }
                let lock = self.folder.join(format!("{}.lock", stem(range)));
                let lock = File::create(lock);
                let lock = lock.map_err(|why| self.failed(&why))?;
                match lock.try_lock() {
                    Ok(()) => {}
                    Err(TryLockError::WouldBlock) => {
                        waits = true;
                        if looks == NOTE {
                            log::info!(
                                "waiting for another rank to count rows {} to {} ({})",
                                range.start,
                                range.end,
                                self.folder.display()
                            );
                        }
                        continue;
                    }
                    Err(TryLockError::Error(why)) => return Err(self.failed(&why)),
                }
                // The previous holder of the lock may have counted the share.
                found[nth] = match self.read(range) {
                    Some(share) => Some(share),
                    None => {
                        let share = count(range.clone()).await?;
                        self.write(range, &share)?;
                        Some(share)
                    }
                };
            }
            if !waits {
                break;
            }
            looks = looks.saturating_add(1);
            tokio::time::sleep(PAUSE).await;
        }
        Ok(found.into_iter().flatten().collect())
    }

    fn failed(&self, why: &dyn std::fmt::Display) -> DataFusionError {
        let folder = self.folder.display();
        exec_datafusion_err!("cannot store row counts in {folder}: {why}")
    }

    /// Reads a share; `None` if it was not counted or its file is damaged.
    fn read(&self, range: &Range<u64>) -> Option<Share> {
        let start = format!("{}-", stem(range));
        let mut files = std::fs::read_dir(&self.folder).ok()?.flatten();
        files.find_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let sum = name.strip_prefix(&start)?;
            let bytes = std::fs::read(entry.path()).ok()?;
            if blake3::hash(&bytes).to_hex().as_str() != sum {
                return None;
            }
            decode(&bytes).filter(|share| share.is_of(range.end - range.start, self.buckets))
        })
    }

    fn write(&self, range: &Range<u64>, share: &Share) -> Result<()> {
        let bytes = encode(share);
        let path = format!("{}-{}", stem(range), blake3::hash(&bytes).to_hex());
        let path = self.folder.join(path);
        // A file damaged by a crash is counted again, so there is no need to sync.
        let written = NewFile::create(&self.folder, "share")
            .and_then(|file| file.as_file().write_all(&bytes).map(|()| file))
            .and_then(|file| file.publish(&path, false));
        written.map_err(|why| self.failed(&why))
    }
}

/// Returns the common prefix of the names of a share's files.
fn stem(range: &Range<u64>) -> String {
    format!("{}-{}", range.start, range.end)
}

/// Encodes a share: two lengths as 64-bit numbers, then the counts and keys as 32-bit numbers, all little-endian.
fn encode(share: &Share) -> Vec<u8> {
    let lengths = [share.rows.len() as u64, share.keys.len() as u64];
    let mut bytes: Vec<u8> = lengths.iter().flat_map(|n| n.to_le_bytes()).collect();
    bytes.extend(share.rows.iter().flat_map(|n| n.to_le_bytes()));
    let keys = share.keys.iter().flat_map(|key| [key.length, key.bucket]);
    bytes.extend(keys.flat_map(u32::to_le_bytes));
    bytes
}

fn decode(bytes: &[u8]) -> Option<Share> {
    let (lengths, numbers) = bytes.split_at_checked(16)?;
    let length = |at: usize| -> Option<usize> {
        let number = u64::from_le_bytes(lengths.get(at..at + 8)?.try_into().ok()?);
        usize::try_from(number).ok()
    };
    let (rows, keys) = (length(0)?, length(8)?);
    let all = rows.checked_add(keys.checked_mul(2)?)?.checked_mul(4)?;
    if numbers.len() != all {
        return None;
    }
    let (row_bytes, key_bytes) = numbers.split_at(rows * 4);
    let number = |four: &[u8]| Some(u32::from_le_bytes(four.try_into().ok()?));
    let pair = |eight: &[u8]| {
        Some(GroupKey {
            length: number(&eight[..4])?,
            bucket: number(&eight[4..])?,
        })
    };
    Some(Share {
        rows: row_bytes
            .chunks_exact(4)
            .map(number)
            .collect::<Option<_>>()?,
        keys: key_bytes.chunks_exact(8).map(pair).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn share(range: Range<u64>) -> Share {
        let key = |n| GroupKey {
            length: n as u32,
            bucket: 1,
        };
        Share {
            rows: range.clone().map(|_| 1).collect(),
            keys: range.map(key).collect(),
        }
    }

    #[tokio::test]
    async fn each_share_is_counted_once_and_every_rank_gets_all() {
        let folder = tempfile::tempdir().unwrap();
        let ranges: Vec<Range<u64>> = (0..12).map(|n| n * 10..n * 10 + 7).collect();
        let counted = AtomicUsize::new(0);
        let rank = async |first| {
            let shares = Shares::new(folder.path(), "x", Some(2));
            let count = |range| async {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                Ok(share(range))
            };
            shares.all(&ranges, first, count).await.unwrap()
        };
        let expected: Vec<Share> = ranges.iter().cloned().map(share).collect();
        let (a, b, c) = tokio::join!(rank(0), rank(4), rank(8));
        assert_eq!((&a, &b, &c), (&expected, &expected, &expected));
        assert_eq!(counted.load(Ordering::Relaxed), 12);
        // A damaged file is counted again.
        let file = std::fs::read_dir(folder.path().join("x")).unwrap();
        let mut files = file.map(|file| file.unwrap().path());
        let damaged = files.find(|file| file.extension().is_none()).unwrap();
        std::fs::write(damaged, b"nothing").unwrap();
        assert_eq!(rank(2).await, expected);
        assert_eq!(counted.load(Ordering::Relaxed), 13);
    }

    /// Another number of ranks divides the rows into other shares, possibly of equal size.
    #[tokio::test]
    async fn shares_of_other_ranges_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let all = async |ranges: Vec<Range<u64>>| {
            let shares = Shares::new(folder.path(), "x", Some(2));
            let count = async |range: Range<u64>| Ok(share(range));
            shares.all(&ranges, 0, count).await.unwrap()
        };
        assert_eq!(
            all(vec![0..10, 10..20]).await,
            [share(0..10), share(10..20)]
        );
        assert_eq!(all(vec![0..5, 5..15]).await, [share(0..5), share(5..15)]);
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
        let bytes = encode(&share(0..5));
        assert_eq!(decode(&bytes), Some(share(0..5)));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        let mut huge = bytes.clone();
        huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(decode(&huge), None);
        assert_eq!(decode(b""), None);
    }
}
