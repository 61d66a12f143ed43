use std::num::NonZeroU64;
use std::sync::Arc;

use forebay_planner::clauses::ShuffleWindow;
use forebay_udfs::draw::pass_key;

use super::row_bitmap::RowBitmap;
use super::*;
use crate::source::content::ContentHasher;
use crate::source::{Manifest, SourceFile, Split};

pub(crate) fn snapshot(files: &[&[u64]], range: std::ops::Range<u64>) -> Snapshot {
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
    let manifest = Manifest {
        files: files.collect(),
        links: Vec::new(),
    };
    let scan = SnapshotScan {
        occurrence: 0,
        location: "x".to_owned(),
        manifest: Arc::new(manifest),
        range,
    };
    Snapshot::try_new(vec![scan]).unwrap()
}

fn rows(n: u64) -> Option<ShuffleWindow> {
    NonZeroU64::new(n).map(ShuffleWindow::Rows)
}

fn all_windows(
    snapshot: &Snapshot,
    shuffle: Option<ShuffleWindow>,
    pass: u64,
) -> Vec<WindowSplits> {
    windows(snapshot, 0..snapshot.splits.len() as u32, shuffle, pass)
}

/// Returns the numbers of all stored rows, in the order of the pass with key `pass`.
fn epoch(snapshot: &Snapshot, shuffle: Option<ShuffleWindow>, pass: u64) -> Vec<u64> {
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
        Some(ShuffleWindow::Global),
    ] {
        let pass = pass_key(3, 1);
        let mut all = epoch(&snapshot, shuffle, pass);
        if shuffle.is_some() {
            assert_ne!(all, (0..66).collect::<Vec<_>>());
        }
        all.sort_unstable();
        assert_eq!(all, (0..66).collect::<Vec<_>>());
        let windows = all_windows(&snapshot, shuffle, pass);
        if let Some(ShuffleWindow::Rows(least)) = shuffle {
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

/// The number of rows comes from file metadata, which may state any number.
#[test]
fn more_rows_than_memory_can_order_are_an_error() {
    let snapshot = snapshot(&[&[7, 1 << 31]], 0..u64::MAX);
    let window = all_windows(&snapshot, Some(ShuffleWindow::Global), 5).remove(0);
    let order = |limit, kept| {
        let kept = |_| kept;
        order(
            &snapshot,
            &window,
            Some(ShuffleWindow::Global),
            5,
            limit,
            kept,
        )
    };
    let error = order(1 << 30, None).unwrap_err().to_string();
    assert!(error.contains("a window has 2147483655 rows"), "{error}");
    assert!(error.contains("may take 51539607720 bytes"), "{error}");
    let few = RowBitmap::new(0..3);
    assert_eq!(order(6 * ORDER_BYTES, Some(&few)).unwrap().len(), 6);
    assert!(order(6 * ORDER_BYTES - 1, Some(&few)).is_err());
}

#[test]
fn leaving_rows_out_keeps_the_order_of_the_others() {
    let snapshot = snapshot(&[&[50, 50]], 0..u64::MAX);
    let window = all_windows(&snapshot, rows(100), 5).remove(0);
    let even = RowBitmap::new((0..50).filter(|o| o % 2 == 0));
    let all = order(&snapshot, &window, rows(100), 5, u64::MAX, |_| None).unwrap();
    let some = order(&snapshot, &window, rows(100), 5, u64::MAX, |_| Some(&even)).unwrap();
    let expected: Vec<_> = all.into_iter().filter(|r| r.offset % 2 == 0).collect();
    assert_eq!(some, expected);
}

/// Each row is equally likely to be at each position of its window, and each split is equally
/// likely to be in each window.
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
    // A chi-square variable with 19 degrees of freedom exceeds 50.8 with probability 1e-4; a
    // chi-square variable with 7 degrees exceeds 27.9.
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

/// The splits are cut and joined to pieces that threads sort.
#[test]
fn pruned_rows_are_left_out_of_the_order_of_large_windows() {
    let snapshot = snapshot(&[&[70_000, 3], &[140_000]], 0..u64::MAX);
    let shuffle = Some(ShuffleWindow::Global);
    let window = all_windows(&snapshot, shuffle, 5).remove(0);
    let kept = RowBitmap::new((0..70_000).filter(|offset| offset % 3 == 1));
    let ordered = |kept: Option<&RowBitmap>| {
        let kept = |split| kept.filter(|_| split == 0);
        order(&snapshot, &window, shuffle, 5, u64::MAX, kept).unwrap()
    };
    let all = ordered(None);
    assert_eq!(all.len(), 210_003);
    let mut stored: Vec<u64> = all.iter().map(|&row| snapshot.stored(row)).collect();
    assert!(!stored.is_sorted());
    stored.sort_unstable();
    assert!(stored.into_iter().eq(0..210_003));
    let left = { all.into_iter() }.filter(|row| row.split != 0 || kept.rank(row.offset).is_some());
    assert_eq!(ordered(Some(&kept)), left.collect::<Vec<_>>());
}
