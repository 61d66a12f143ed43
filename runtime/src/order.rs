//! The order of an epoch: windows of splits, and the rows within a window.
//!
//! Both are functions of (snapshot, seed, epoch): splits are permuted by a hash, consecutive ones
//! form windows, and the rows of a window stand in the order of a hash of their keys. No statistics,
//! no filter and no thread count takes part.

use std::num::NonZeroU64;

use datafusion::common::{Result, exec_err};
use forebay_planner::clauses::Window;
use forebay_udfs::hash::combine;

use crate::kept::KeptRows;
use crate::snapshot::Snapshot;

/// Tells the order of splits from other uses of a pass key.
const SPLIT_SALT: u64 = 0x7370_6c69_7473_0001;
/// Tells the order of rows from other uses of a pass key.
const ROW_SALT: u64 = 0x726f_7773_0000_0001;
/// Stored rows that are read together where nothing is shuffled. Windows are counted by it, so a horizon and a resume
/// token depend on it: another value needs another version of canonical texts.
const UNSHUFFLED_ROWS: u64 = 8192;

/// Some splits whose rows are ordered among themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowSplits {
    /// Indices into the snapshot's splits, in the order of the epoch.
    pub splits: Vec<u32>,
    /// Stored rows.
    pub rows: u64,
}

/// Cuts splits of the snapshot, given in stored order, into the windows of the pass with key `pass`.
///
/// Every window but the last has at least as many stored rows as asked for.
pub fn windows(
    snapshot: &Snapshot,
    splits: impl IntoIterator<Item = u32>,
    shuffle: Option<Window>,
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
        Some(Window::Rows(rows)) => NonZeroU64::get(rows),
        Some(Window::Global) => u64::MAX,
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

/// A stored row of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoredRow {
    /// Index into the snapshot's splits.
    pub split: u32,
    /// Row of the split, counted from the first row that the snapshot has of it.
    pub offset: u32,
}

impl StoredRow {
    /// The row as one to compute.
    pub const fn at(self, position: u64, pass: u64) -> Place {
        let Self { split, offset } = self;
        Place {
            position,
            pass,
            split,
            offset,
        }
    }
}

/// A row to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its place among the rows that are computed together: greater than that of every row before it.
    pub position: u64,
    /// Key of the pass that it belongs to.
    pub pass: u64,
    /// Index into the snapshot's splits.
    pub split: u32,
    /// Row of the split, counted from the first row that the snapshot has of it.
    pub offset: u32,
}

impl Place {
    /// The stored row.
    pub const fn row(&self) -> StoredRow {
        let &Self { split, offset, .. } = self;
        StoredRow { split, offset }
    }
}

/// Bytes that ordering takes for each row: its key while rows are sorted, and the row itself.
const ORDER_BYTES: u64 = (size_of::<u128>() + size_of::<StoredRow>()) as u64;

/// The rows of a window in the order of the pass. Of a split for which `kept` has rows, only those are
/// rows; leaving rows out changes nothing of the order of the others.
///
/// # Errors
/// More rows than `limit` bytes of memory can order: what a file says of its rows is not believed further.
pub fn order<'a>(
    snapshot: &Snapshot,
    window: &WindowSplits,
    shuffle: Option<Window>,
    pass: u64,
    limit: u64,
    kept: impl Fn(u32) -> Option<&'a KeptRows>,
) -> Result<Vec<StoredRow>> {
    let salted = combine(pass, ROW_SALT);
    let rows_of = |&index: &u32| match kept(index) {
        Some(rows) => rows.len(),
        None => snapshot.splits[index as usize].rows,
    };
    let rows = window.splits.iter().map(rows_of).sum::<u64>();
    let minimum = rows.saturating_mul(ORDER_BYTES);
    if minimum > limit {
        return exec_err!(
            "a window has {rows} rows, and ordering them takes {minimum} bytes, more than the memory limit of \
             {limit}; raise the limit, shuffle within fewer rows, or write the files with smaller row groups"
        );
    }
    // Hash, split and offset in one number, which compares without a branch.
    let mut keyed: Vec<u128> = Vec::with_capacity(rows as usize);
    for &index in &window.splits {
        let split = &snapshot.splits[index as usize];
        let mut add = |offset: u32| {
            let hash = match shuffle {
                Some(_) => snapshot.row_hash(split.file, split.first_row + u64::from(offset)),
                None => 0,
            };
            let hash = combine(salted, hash);
            let place = u64::from(index) << 32 | u64::from(offset);
            keyed.push(u128::from(hash) << 64 | u128::from(place));
        };
        match kept(index) {
            Some(rows) => rows.offsets().for_each(&mut add),
            // A snapshot has no split of more rows than u32 counts.
            None => (0..split.rows as u32).for_each(&mut add),
        }
    }
    if shuffle.is_some() {
        // Equal hashes are ordered by key: stored order is the order of (occurrence, path, row).
        keyed.sort_unstable();
    }
    let rows = keyed.into_iter().map(|key| StoredRow {
        split: (key >> 32) as u32,
        offset: key as u32,
    });
    Ok(rows.collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::RecordBatch;
    use arrow::datatypes::{Schema, SchemaRef};
    use async_trait::async_trait;
    use datafusion::common::internal_err;
    use forebay_planner::source::{Format, SourceSpec};
    use forebay_udfs::draw::pass_key;
    use futures::StreamExt;
    use futures::stream::BoxStream;

    use super::*;
    use crate::snapshot::ScanSource;
    use crate::source::content::ContentHasher;
    use crate::source::{
        Access, Manifest, Scan, Source, SourceFile, Split, StoredRows, ValueError,
    };

    /// A source whose files have splits of these sizes, and no data.
    #[derive(Debug)]
    struct Sizes {
        spec: SourceSpec,
        schema: SchemaRef,
        manifest: Manifest,
    }

    #[async_trait]
    impl Source for Sizes {
        fn spec(&self) -> &SourceSpec {
            &self.spec
        }

        fn schema(&self) -> &SchemaRef {
            &self.schema
        }

        fn manifest(&self) -> &Manifest {
            &self.manifest
        }

        fn access(&self) -> Access {
            Access::Direct
        }

        fn read_split(
            &self,
            _: usize,
            _: usize,
            _: &Scan,
        ) -> BoxStream<'static, Result<StoredRows>> {
            futures::stream::iter([internal_err!("no data")]).boxed()
        }

        async fn fetch(
            &self,
            _: &[(u32, u64)],
            _: &[usize],
        ) -> Result<(RecordBatch, Vec<ValueError>)> {
            internal_err!("no data")
        }
    }

    fn snapshot(files: &[&[u64]], range: std::ops::Range<u64>) -> Snapshot {
        let files = files.iter().enumerate().map(|(i, splits)| {
            let mut first_row = 0;
            let splits = splits.iter().map(|&rows| {
                let split = Split {
                    first_row,
                    rows,
                    bytes: rows,
                };
                first_row += rows;
                split
            });
            let splits = splits.collect();
            SourceFile {
                path: format!("f{i}"),
                size: 1,
                etag: None,
                content: ContentHasher::new("PARQUET", "").finish(),
                modified: None,
                splits,
            }
        });
        let spec = SourceSpec {
            format: Format::Parquet,
            location: "x".into(),
            options: Default::default(),
            columns: None,
        };
        let manifest = Manifest {
            files: files.collect(),
            links: Vec::new(),
        };
        let source = Sizes {
            spec,
            schema: Arc::new(Schema::empty()),
            manifest,
        };
        let scan = ScanSource {
            occurrence: 0,
            source: Arc::new(source),
            range,
        };
        Snapshot::try_new(vec![scan]).unwrap()
    }

    fn rows(n: u64) -> Option<Window> {
        NonZeroU64::new(n).map(Window::Rows)
    }

    fn all_windows(snapshot: &Snapshot, shuffle: Option<Window>, pass: u64) -> Vec<WindowSplits> {
        windows(snapshot, 0..snapshot.splits.len() as u32, shuffle, pass)
    }

    /// The stored rows of an epoch in order.
    fn epoch(snapshot: &Snapshot, shuffle: Option<Window>, pass: u64) -> Vec<u64> {
        let mut all = Vec::new();
        for window in all_windows(snapshot, shuffle, pass) {
            let rows = order(snapshot, &window, shuffle, pass, u64::MAX, |_| None).unwrap();
            all.extend(rows.iter().map(|&row| snapshot.stored(row)));
        }
        all
    }

    #[test]
    fn every_epoch_is_a_permutation_and_windows_are_large_enough() {
        let snapshot = snapshot(&[&[7, 1, 30], &[4], &[12, 12]], 0..u64::MAX);
        for shuffle in [
            None,
            rows(1),
            rows(10),
            rows(40),
            rows(1000),
            Some(Window::Global),
        ] {
            let pass = pass_key(3, 1);
            let mut all = epoch(&snapshot, shuffle, pass);
            if shuffle.is_some() {
                assert_ne!(all, (0..66).collect::<Vec<_>>());
            }
            all.sort_unstable();
            assert_eq!(all, (0..66).collect::<Vec<_>>());
            let windows = all_windows(&snapshot, shuffle, pass);
            if let Some(Window::Rows(least)) = shuffle {
                let whole = &windows[..windows.len() - 1];
                assert!(whole.iter().all(|w| w.rows >= least.get()));
            }
        }
    }

    #[test]
    fn a_range_of_rows_cuts_splits() {
        let snapshot = snapshot(&[&[7, 1, 30], &[4]], 5..20);
        assert_eq!(snapshot.rows(), 15);
        assert_eq!(snapshot.splits[0].first_row, 5);
        assert_eq!(epoch(&snapshot, None, 0), (0..15).collect::<Vec<_>>());
    }

    /// A file may state any number of rows.
    #[test]
    fn more_rows_than_memory_can_order_are_an_error() {
        let snapshot = snapshot(&[&[7, 1 << 31]], 0..u64::MAX);
        let window = all_windows(&snapshot, Some(Window::Global), 5).remove(0);
        let order = |limit, kept| {
            let kept = |_| kept;
            order(&snapshot, &window, Some(Window::Global), 5, limit, kept)
        };
        let error = order(1 << 30, None).unwrap_err().to_string();
        assert!(error.contains("a window has 2147483655 rows"), "{error}");
        assert!(error.contains("takes 51539607720 bytes"), "{error}");
        let few = KeptRows::new(0..3);
        assert_eq!(order(6 * ORDER_BYTES, Some(&few)).unwrap().len(), 6);
        assert!(order(6 * ORDER_BYTES - 1, Some(&few)).is_err());
    }

    #[test]
    fn leaving_rows_out_keeps_the_order_of_the_others() {
        let snapshot = snapshot(&[&[50, 50]], 0..u64::MAX);
        let window = all_windows(&snapshot, rows(100), 5).remove(0);
        let even = KeptRows::new((0..50).filter(|o| o % 2 == 0));
        let all = order(&snapshot, &window, rows(100), 5, u64::MAX, |_| None).unwrap();
        let some = order(&snapshot, &window, rows(100), 5, u64::MAX, |_| Some(&even)).unwrap();
        let expected: Vec<_> = all.into_iter().filter(|r| r.offset % 2 == 0).collect();
        assert_eq!(some, expected);
    }

    /// Each row is as likely at each position of its window, and each split in each window.
    #[test]
    fn positions_are_uniform() {
        const EPOCHS: u64 = 8000;
        let chi_square = |counts: &[u64]| {
            let expected = EPOCHS as f64 / counts.len() as f64;
            counts
                .iter()
                .map(|&c| (c as f64 - expected).powi(2) / expected)
                .sum::<f64>()
        };
        let one = snapshot(&[&[5, 5], &[10]], 0..u64::MAX);
        let mut counts = vec![vec![0; 20]; 20];
        for seed in 0..EPOCHS {
            let order = epoch(&one, rows(20), pass_key(seed, 0));
            for (position, stored) in order.into_iter().enumerate() {
                counts[stored as usize][position] += 1;
            }
        }
        // 50.8 is the chi-square of p = 1e-4 with 19 degrees of freedom, 27.9 with 7.
        for of_row in &counts {
            assert!(chi_square(of_row) < 50.8, "{of_row:?}");
        }
        let many = snapshot(&[&[1; 8]], 0..u64::MAX);
        let mut counts = vec![vec![0; 8]; 8];
        for epoch in 0..EPOCHS {
            for (index, window) in all_windows(&many, rows(1), pass_key(11, epoch))
                .iter()
                .enumerate()
            {
                counts[window.splits[0] as usize][index] += 1;
            }
        }
        for of_split in &counts {
            assert!(chi_square(of_split) < 27.9, "{of_split:?}");
        }
    }
}
