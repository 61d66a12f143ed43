//! Counting by several ranks. Each rank counts some shares (ranges) of the stored rows, writes the
//! counts to a common folder, and reads the counts of the other ranks. Later runs over the same
//! data reuse all counts.
//!
//! A rank claims a share by locking the share's lock file. The system releases the lock if the
//! process dies, and then another rank counts the share. The name of a count file contains the
//! range of rows, because another number of ranks divides the rows differently, and a checksum of
//! the file's contents. A damaged file is ignored, and its share is counted again.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use forebay_planner::compile::Compiled;
use forebay_planner::rows::canonical::groups_lines;
use forebay_planner::rows::fingerprint::plan_text;
use forebay_planner::rows::membership::membership;

use super::count_share::CountShare;
use crate::job::open_plan::OpenPlan;
use crate::output_file::NewFile;
#[cfg(test)]
use crate::stream::group::GroupKey;

/// Pause between two checks of what other ranks have counted.
const PAUSE: Duration = Duration::from_millis(20);
/// Number of checks after which the rank logs which rows it is waiting for. This many checks take
/// ten seconds.
const NOTE: u32 = 500;

/// A folder through which ranks share counts.
#[derive(Debug)]
pub(crate) struct Shares {
    folder: PathBuf,
    /// Number of buckets to which group keys may belong; `None` if rows have no group keys.
    buckets: Option<usize>,
}

impl Shares {
    /// Returns the shares of `plan` in a folder beside the pipeline's cache directory. A hash of
    /// everything that determines the counts is the folder's name. Returns `None` without a local
    /// cache directory, and under MIX.
    pub(crate) fn of(
        compiled: &Compiled,
        plan: &OpenPlan,
        buckets: Option<usize>,
    ) -> Result<Option<Self>> {
        let Some(dir) = &compiled.clauses.options.cache_dir else {
            return Ok(None);
        };
        let dir = dir.strip_prefix("file://").unwrap_or(dir);
        if dir.contains("://") || compiled.chosen.mix().is_some() {
            return Ok(None);
        }
        let mut hasher = blake3::Hasher::new();
        let decides = membership(compiled.chosen.clone())?;
        let groups = groups_lines(&compiled.clauses).join("\n");
        for part in [&plan_text(&decides)?, &groups] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        // The text of the plan names neither the files nor their contents.
        for data in plan.all_data() {
            let keys = data.file_keys(None, |scan| scan.occurrence.to_string());
            hasher.update(&(keys.len() as u64).to_le_bytes());
            for key in keys {
                hasher.update(&key.bytes());
            }
        }
        let folder = PathBuf::from(format!("{}.counts", dir.trim_end_matches('/')));
        Ok(Some(Self {
            folder: folder.join(hasher.finalize().to_hex().as_str()),
            buckets,
        }))
    }

    /// Returns the counts of all `ranges` of stored rows. This rank counts the ranges that no rank
    /// has counted, beginning with the range at index `first`, while other ranks may count other
    /// ranges. `count` counts the range at an index.
    pub(crate) async fn all<F: Future<Output = Result<CountShare>>>(
        &self,
        ranges: &[Range<u64>],
        first: usize,
        mut count: impl FnMut(usize) -> F,
    ) -> Result<Vec<CountShare>> {
        std::fs::create_dir_all(&self.folder).map_err(|why| self.failed(&why))?;
        let mut found: Vec<Option<CountShare>> = vec![None; ranges.len()];
        let mut looks = 0_u32;
        loop {
            let mut waits = false;
            for nth in 0..ranges.len() {
                let nth = (first + nth) % ranges.len();
                let range = &ranges[nth];
                found[nth] = found[nth].take().or_else(|| self.read(range));
                if found[nth].is_some() {
                    continue;
                }
                let lock = self.folder.join(format!("{}.lock", stem(range)));
                let lock = File::create(lock).map_err(|why| self.failed(&why))?;
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
                found[nth] = self.read(range);
                if found[nth].is_none() {
                    let share = count(nth).await?;
                    self.write(range, &share)?;
                    found[nth] = Some(share);
                }
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

    /// Reads the counts of `range`; `None` if the range was not counted or its file is damaged.
    fn read(&self, range: &Range<u64>) -> Option<CountShare> {
        let start = format!("{}-", stem(range));
        let mut files = std::fs::read_dir(&self.folder).ok()?.flatten();
        files.find_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let sum = name.strip_prefix(&start)?;
            let bytes = std::fs::read(entry.path()).ok()?;
            if blake3::hash(&bytes).to_hex().as_str() != sum {
                return None;
            }
            CountShare::from_bytes(&bytes)
                .filter(|share| share.is_of(range.end - range.start, self.buckets))
        })
    }

    fn write(&self, range: &Range<u64>, share: &CountShare) -> Result<()> {
        let bytes = share.to_bytes();
        let path = format!("{}-{}", stem(range), blake3::hash(&bytes).to_hex());
        let path = self.folder.join(path);
        // If a crash damages the file, its share is counted again, so there is no need to sync the
        // file.
        let written = NewFile::create(&self.folder, "share")
            .and_then(|file| file.as_file().write_all(&bytes).map(|()| file))
            .and_then(|file| file.publish(&path, false));
        written.map_err(|why| self.failed(&why))
    }
}

/// Returns the common prefix of the names of the lock file and the count file of `range`.
fn stem(range: &Range<u64>) -> String {
    format!("{}-{}", range.start, range.end)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn shares(folder: &tempfile::TempDir) -> Shares {
        Shares {
            folder: folder.path().join("x"),
            buckets: Some(2),
        }
    }

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

    #[tokio::test]
    async fn each_share_is_counted_once_and_every_rank_gets_all() {
        let folder = tempfile::tempdir().unwrap();
        let ranges: Vec<Range<u64>> = (0..12).map(|n| n * 10..n * 10 + 7).collect();
        let counted = AtomicUsize::new(0);
        let rank = async |first| {
            let (ranges, counted) = (&ranges, &counted);
            let count = |nth: usize| async move {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                Ok(share(ranges[nth].clone()))
            };
            shares(&folder).all(ranges, first, count).await.unwrap()
        };
        let expected: Vec<CountShare> = ranges.iter().cloned().map(share).collect();
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
            let count = async |nth: usize| Ok(share(ranges[nth].clone()));
            shares(&folder).all(&ranges, 0, count).await.unwrap()
        };
        assert_eq!(
            all(vec![0..10, 10..20]).await,
            [share(0..10), share(10..20)]
        );
        assert_eq!(all(vec![0..5, 5..15]).await, [share(0..5), share(5..15)]);
    }
}
