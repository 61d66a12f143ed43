use std::num::NonZeroU64;

use forebay_planner::clauses::{BatchClause, BatchScope, Bucket, Pack, Pad};
use proptest::prelude::*;

use super::*;

fn some(n: u64) -> NonZeroU64 {
    NonZeroU64::new(n).unwrap()
}

fn clauses(size: BatchSize, remainder: Remainder) -> Clauses {
    Clauses {
        batch: Some(BatchClause {
            size,
            scope: BatchScope::PerRank,
            remainder,
        }),
        ..Clauses::default()
    }
}

fn packs(into: u64, batch: u64) -> Clauses {
    Clauses {
        pack: Some(Pack {
            column: "ids".to_owned(),
            into: some(into),
        }),
        ..clauses(BatchSize::Rows(some(batch)), Remainder::Keep)
    }
}

fn key(length: u32) -> GroupKey {
    GroupKey { length, bucket: 0 }
}

/// Returns the batches of rows with these keys. Each row is named by its index in `keys`.
fn groups(clauses: &Clauses, keys: &[GroupKey]) -> Vec<Group<usize>> {
    let mut grouper = Grouper::new(Grouping::of(clauses));
    let mut out = Vec::new();
    for (row, key) in keys.iter().enumerate() {
        grouper.push(row, *key, &mut out);
    }
    grouper.finish(&mut out);
    out
}

#[test]
fn packs_are_filled_first_fit_and_emitted_in_order_of_completion() {
    let keys = [6, 5, 4, 5, 3].map(key);
    let found = groups(&packs(10, 1), &keys);
    let rows: Vec<_> = found.iter().map(|group| group.rows.clone()).collect();
    // The packs hold rows of lengths 6 + 4, then 5 + 5, then 3.
    assert_eq!(rows, [vec![0, 2], vec![1, 3], vec![4]]);
    let sizes: Vec<_> = found.iter().map(|group| group.packs.clone()).collect();
    assert_eq!(sizes, [Some(vec![2]), Some(vec![2]), Some(vec![1])]);
}

#[test]
fn batches_by_tokens_count_elements_or_the_longest_row() {
    let keys = [3, 3, 3, 9, 1].map(key);
    let tokens = clauses(BatchSize::Tokens(some(9)), Remainder::Keep);
    let rows = |clauses: &Clauses| -> Vec<Vec<usize>> {
        let groups = groups(clauses, &keys);
        groups.into_iter().map(|group| group.rows).collect()
    };
    assert_eq!(rows(&tokens), [vec![0, 1, 2], vec![3], vec![4]]);
    let padded = Clauses {
        tokens_of: Some("ids".to_owned()),
        pad: vec![Pad {
            column: "ids".to_owned(),
            to: None,
            with: None,
        }],
        ..clauses(BatchSize::Tokens(some(10)), Remainder::Keep)
    };
    // With padding, four rows of 3 would take 12 elements, and rows of 9 and 1 would take 18.
    assert_eq!(rows(&padded), [vec![0, 1, 2], vec![3], vec![4]]);
}

#[test]
fn each_bucket_fills_its_own_batches_and_a_horizon_completes_them() {
    let bucketed = |remainder| Clauses {
        bucket: Some(Bucket {
            boundaries: vec![1, 2],
        }),
        ..clauses(BatchSize::Rows(some(2)), remainder)
    };
    let keys = [0, 1, 0, 2, 1, 2, 0].map(|bucket| GroupKey { length: 0, bucket });
    let found = groups(&bucketed(Remainder::Keep), &keys);
    let rows: Vec<_> = found.into_iter().map(|group| group.rows).collect();
    assert_eq!(rows, [vec![0, 2], vec![1, 4], vec![3, 5], vec![6]]);
    let mut grouper = Grouper::new(Grouping::of(&bucketed(Remainder::Drop)));
    let mut out = Vec::new();
    grouper.push(0, keys[0], &mut out);
    grouper.flush(&mut out);
    assert!(out.is_empty() && grouper.is_empty());
}

proptest! {
    /// Every row is in exactly one batch, no pack or batch is too large, and open groups are bounded.
    #[test]
    fn every_row_is_in_one_group(
        lengths in prop::collection::vec(0_u32..40, 0..400),
        into in 40_u64..90,
        batch in 1_u64..6,
        mode in 0..4,
        horizon in 5_usize..60,
    ) {
        let clauses = match mode {
            0 => packs(into, batch),
            1 => clauses(BatchSize::Tokens(some(into)), Remainder::Keep),
            2 => Clauses {
                bucket: Some(Bucket { boundaries: vec![10, 20] }),
                ..clauses(BatchSize::Tokens(some(into)), Remainder::Keep)
            },
            _ => clauses(BatchSize::Rows(some(batch)), Remainder::Keep),
        };
        let keyed: Vec<(usize, GroupKey)> = lengths
            .iter()
            .map(|&length| {
                let bucket = if mode == 2 { (length / 10).min(2) } else { 0 };
                GroupKey { length, bucket }
            })
            .enumerate()
            .collect();
        let mut whole = Grouper::new(Grouping::of(&clauses));
        let mut parts = Grouper::new(Grouping::of(&clauses));
        let (mut out, mut again) = (Vec::new(), Vec::new());
        for (nth, (row, key)) in keyed.iter().enumerate() {
            whole.push(*row, *key, &mut out);
            parts.push(*row, *key, &mut again);
            let in_bins: usize = whole.carry().bins.iter().map(Vec::len).sum();
            prop_assert!(in_bins <= MAX_CARRY);
            if nth % horizon == 0 {
                // Simulates a run that stops at this row, and a second run that resumes from the
                // same position.
                let carry = parts.carry().map(|row| Ok::<_, ()>((*row, keyed[*row].1))).unwrap();
                parts = Grouper::resume(Grouping::of(&clauses), &carry);
            }
            if nth % (3 * horizon) == 7 {
                whole.flush(&mut out);
                parts.flush(&mut again);
            }
        }
        whole.finish(&mut out);
        parts.finish(&mut again);
        prop_assert_eq!(&out, &again);
        let mut rows: Vec<usize> = out.iter().flat_map(|group| group.rows.clone()).collect();
        rows.sort_unstable();
        prop_assert_eq!(rows, (0..lengths.len()).collect::<Vec<_>>());
        let tokens = |rows: &[usize]| rows.iter().map(|&r| u64::from(lengths[r])).sum::<u64>();
        for group in &out {
            let mut rest = group.rows.as_slice();
            for &pack in group.packs.iter().flatten() {
                let (of_pack, behind) = rest.split_at(pack as usize);
                prop_assert!(tokens(of_pack) <= into);
                rest = behind;
            }
            if mode == 1 || mode == 2 {
                prop_assert!(tokens(&group.rows) <= into);
            }
        }
    }
}

/// In a batch of many packs, every pack is as full as possible, including the last.
#[test]
fn large_batches_of_packs_are_full() {
    let mut grouper = Grouper::new(Grouping::of(&packs(2048, 256)));
    let mut out = Vec::new();
    for row in 0..30_000 {
        grouper.push(row, key(50), &mut out);
    }
    let packs: Vec<u32> = out.iter().flat_map(|g| g.packs.clone().unwrap()).collect();
    assert_eq!(packs, vec![40; 512]);
}

/// An empty sequence counts as one element in `BATCH BY TOKENS`. Otherwise, all empty sequences
/// would be in one batch.
#[test]
fn batches_of_empty_sequences_are_bounded() {
    let clauses = clauses(BatchSize::Tokens(some(100)), Remainder::Keep);
    let mut grouper = Grouper::new(Grouping::of(&clauses));
    let mut out = Vec::new();
    for row in 0..1_000 {
        grouper.push(row, key(0), &mut out);
    }
    grouper.finish(&mut out);
    assert!(out.iter().all(|group| group.rows.len() == 100));
    assert_eq!(out.len(), 10);
}

#[test]
fn packs_of_empty_sequences_are_bounded() {
    let mut grouper = Grouper::new(Grouping::of(&packs(10, 1)));
    let mut out = Vec::new();
    for row in 0..3 * MAX_CARRY {
        grouper.push(row, key(0), &mut out);
        assert!(grouper.rows().count() <= MAX_CARRY);
    }
    assert!(!out.is_empty());
}
