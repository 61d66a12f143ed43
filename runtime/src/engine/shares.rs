//! Counting together: ranks that share a folder each count a share of the stored rows, and read the others'
//! counts. What was counted once is there for every later run over the same data.
//!
//! A share is claimed by a lock on its file, which the system gives up when a process dies, so a share whose
//! counter died is counted by another. A file's name has the checksum of what it holds; one that is damaged is
//! counted again.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use datafusion::common::{DataFusionError, Result, exec_datafusion_err};

use crate::group::Key;

/// Pause between looks at what other ranks count.
const PAUSE: Duration = Duration::from_millis(20);

/// What was counted of a share: rows by stored row, and the keys of these rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Share {
    pub(super) rows: Vec<u32>,
    pub(super) keys: Vec<Key>,
}

/// A folder in which ranks count together.
#[derive(Debug)]
pub(super) struct Shares {
    folder: PathBuf,
}

impl Shares {
    /// The counts of one thing, named by what decides it and the data, below a folder.
    pub(super) fn new(folder: &Path, name: &str) -> Self {
        Self {
            folder: folder.join(name),
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
        loop {
            let mut waits = false;
            for nth in 0..ranges.len() {
                let nth = (first + nth) % ranges.len();
                if found[nth].is_some() {
                    continue;
                }
                let rows = (ranges[nth].end - ranges[nth].start) as usize;
                found[nth] = self.read(nth, rows);
                if found[nth].is_some() {
                    continue;
                }
                let lock = File::create(self.folder.join(format!("{nth}.lock")));
                let lock = lock.map_err(|why| self.failed(&why))?;
                match lock.try_lock() {
                    Ok(()) => {}
                    Err(TryLockError::WouldBlock) => {
                        waits = true;
                        continue;
                    }
                    Err(TryLockError::Error(why)) => return Err(self.failed(&why)),
                }
                // Whoever had the lock before may have counted it.
                found[nth] = match self.read(nth, rows) {
                    Some(share) => Some(share),
                    None => {
                        let share = count(ranges[nth].clone()).await?;
                        self.write(nth, &share)?;
                        Some(share)
                    }
                };
            }
            if !waits {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(found.into_iter().flatten().collect())
    }

    fn failed(&self, why: &dyn std::fmt::Display) -> DataFusionError {
        let folder = self.folder.display();
        exec_datafusion_err!("counts of rows cannot be kept in {folder}: {why}")
    }

    /// A share that was counted; `None` where it was not, or is damaged.
    fn read(&self, nth: usize, rows: usize) -> Option<Share> {
        let start = format!("{nth}-");
        for entry in std::fs::read_dir(&self.folder).ok()?.flatten() {
            let name = entry.file_name().into_string().ok()?;
            let Some(sum) = name.strip_prefix(&start) else {
                continue;
            };
            let bytes = std::fs::read(entry.path()).ok()?;
            if blake3::hash(&bytes).to_hex().as_str() == sum {
                let share = decode(&bytes)?;
                return (share.rows.len() == rows).then_some(share);
            }
        }
        None
    }

    fn write(&self, nth: usize, share: &Share) -> Result<()> {
        let bytes = encode(share);
        let path = self
            .folder
            .join(format!("{nth}-{}", blake3::hash(&bytes).to_hex()));
        let written = tempfile::NamedTempFile::new_in(&self.folder)
            .and_then(|mut file| file.write_all(&bytes).map(|()| file))
            .and_then(|file| file.persist(&path).map_err(|error| error.error));
        written.map(drop).map_err(|why| self.failed(&why))
    }
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
            rows: range.clone().map(|n| n as u32 % 3).collect(),
            keys: range.map(key).collect(),
        }
    }

    #[tokio::test]
    async fn ranks_count_each_share_once_and_all_have_all() {
        let folder = tempfile::tempdir().unwrap();
        let ranges: Vec<Range<u64>> = (0..12).map(|n| n * 10..n * 10 + 7).collect();
        let counted = AtomicUsize::new(0);
        let rank = async |first| {
            let shares = Shares::new(folder.path(), "x");
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
