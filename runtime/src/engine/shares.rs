//! Counting together: ranks that share a folder each count a share of the stored rows, and read the others'
//! counts. What was counted once is there for every later run over the same data.
//!
//! A share is claimed by a lock on its file, which the system gives up when a process dies, so a share whose
//! counter died is counted by another. A file's name has the rows that it counts, since another number of ranks
//! has other shares, and the checksum of what it holds; one that is damaged is counted again.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use datafusion::common::{DataFusionError, Result, exec_datafusion_err};

use crate::group::Key;
use crate::output_file::NewFile;

/// Pause between looks at what other ranks count.
const PAUSE: Duration = Duration::from_millis(20);
/// Looks after which it is told who is waited for: ten seconds.
const NOTE: u32 = 500;

/// What was counted of a share: rows by stored row, and the keys of these rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Share {
    pub(super) rows: Vec<u32>,
    pub(super) keys: Vec<Key>,
}

impl Share {
    /// Whether it is what counting so many rows can give: a key in one of so many buckets for each row that
    /// comes, or none where rows have none.
    fn is_of(&self, rows: u64, buckets: Option<usize>) -> bool {
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

/// A folder in which ranks count together.
#[derive(Debug)]
pub(super) struct Shares {
    folder: PathBuf,
    /// Buckets of the rows' keys; absent where rows have none.
    buckets: Option<usize>,
}

impl Shares {
    /// The counts of one thing, named by what decides it and the data, below a folder.
    pub(super) fn new(folder: &Path, name: &str, buckets: Option<usize>) -> Self {
        Self {
            folder: folder.join(name),
            buckets,
        }
    }

    /// The counts of every range of stored rows. Those that nobody counted are counted here, beginning with
    /// `first`; others may count meanwhile.
    pub(super) async fn all<F: Future<Output = Result<Share>>>(
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
                // Whoever had the lock before may have counted it.
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
        exec_datafusion_err!("counts of rows cannot be kept in {folder}: {why}")
    }

    /// A share that was counted; `None` where it was not, or what is there is damaged.
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
        // A file that a crash damages is counted again, so nobody waits for the disk.
        let written = NewFile::create(&self.folder, "share")
            .and_then(|file| file.as_file().write_all(&bytes).map(|()| file))
            .and_then(|file| file.publish(&path, false));
        written.map_err(|why| self.failed(&why))
    }
}

/// What the names of a share's files begin with.
fn stem(range: &Range<u64>) -> String {
    format!("{}-{}", range.start, range.end)
}

/// Two lengths, then the numbers, each in four bytes, lowest first.
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
    let (of_rows, of_keys) = numbers.split_at(rows * 4);
    let number = |four: &[u8]| Some(u32::from_le_bytes(four.try_into().ok()?));
    let pair = |eight: &[u8]| {
        Some(Key {
            length: number(&eight[..4])?,
            bucket: number(&eight[4..])?,
        })
    };
    Some(Share {
        rows: of_rows.chunks_exact(4).map(number).collect::<Option<_>>()?,
        keys: of_keys.chunks_exact(8).map(pair).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn share(range: Range<u64>) -> Share {
        let key = |n| Key {
            length: n as u32,
            bucket: 1,
        };
        Share {
            rows: range.clone().map(|_| 1).collect(),
            keys: range.map(key).collect(),
        }
    }

    #[tokio::test]
    async fn ranks_count_each_share_once_and_all_have_all() {
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

    /// Of another number of ranks the shares are others, of as many rows perhaps.
    #[tokio::test]
    async fn shares_of_other_rows_are_not_taken() {
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
    fn what_cannot_be_counted_is_no_share() {
        assert!(share(0..5).is_of(5, Some(2)));
        assert!(!share(0..5).is_of(6, Some(2)));
        assert!(!share(0..5).is_of(5, Some(1)), "there is no bucket 1");
        assert!(!share(0..5).is_of(5, None));
        let mut missing = share(0..5);
        missing.keys.pop();
        assert!(!missing.is_of(5, Some(2)));
    }

    #[test]
    fn what_is_no_share_is_none() {
        let bytes = encode(&share(0..5));
        assert_eq!(decode(&bytes), Some(share(0..5)));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        let mut huge = bytes.clone();
        huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(decode(&huge), None);
        assert_eq!(decode(b""), None);
    }
}
