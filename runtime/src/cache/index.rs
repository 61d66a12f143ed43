//! In-memory index of an entry's rows: a sorted, compact table from row addresses to rows in
//! segments.
//!
//! Each range of consecutive rows takes 16 bytes, and each file 24 bytes. So ten million rows of a
//! few files, stored in random order, take 160 MB. Ten million files of one row each take 400 MB,
//! which is less than the list of these files takes.

use super::key::{FileKey, RowAddress};
use super::layout::RowRun;

/// Value of [`Packed::at`] for a range of rows that the filter dropped.
const DROPPED: u32 = u32::MAX;

/// Number of a segment of an entry, in the order in which this process learned of the segments.
pub(super) type SegmentSlot = u32;

/// A table from row ranges to segments, sorted by row address.
#[derive(Debug, Default)]
pub(super) struct Index {
    groups: Vec<FileGroup>,
    runs: Vec<Packed>,
}

/// The indexed rows of one file whose row numbers have the same upper 32 bits.
#[derive(Debug, Clone, Copy)]
struct FileGroup {
    file: [u8; 16],
    high: u32,
    /// Index in `runs` of the first range of the group.
    start: u32,
}

#[derive(Debug, Clone, Copy)]
struct Packed {
    row: u32,
    rows: u32,
    slot: SegmentSlot,
    at: u32,
}

/// The segment that holds a row, and the number of the row in that segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FoundRow {
    pub(super) slot: SegmentSlot,
    /// Number of the row among the segment's kept rows; `None` when the filter dropped the row.
    pub(super) at: Option<u32>,
}

type Placed = ([u8; 16], u64, Packed);

impl Index {
    /// Creates the table of `runs`, the row ranges of the segment `slot`.
    pub(super) fn new(slot: SegmentSlot, runs: &[RowRun]) -> Self {
        let placed = runs.iter().flat_map(|run| halves(slot, run));
        collect(placed, |_| true)
    }

    /// Merges two tables, without the segments for which `alive` is false. For a row that both
    /// tables have, the result uses the range that begins first; if both begin at the same row, the
    /// range of `self`.
    pub(super) fn merged(&self, other: &Self, alive: impl Fn(SegmentSlot) -> bool) -> Self {
        let (mut a, mut b) = (self.iter().peekable(), other.iter().peekable());
        let placed = std::iter::from_fn(|| {
            let before = match (a.peek(), b.peek()) {
                (Some(a), Some(b)) => (a.0, a.1) <= (b.0, b.1),
                (first, _) => first.is_some(),
            };
            if before { a.next() } else { b.next() }
        });
        collect(placed, alive)
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Returns the memory that the table takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.groups.as_slice()) + size_of_val(self.runs.as_slice())
    }

    pub(super) fn find(&self, address: RowAddress) -> Option<FoundRow> {
        let (file, high) = (address.file.bytes(), (address.row >> 32) as u32);
        let group = self
            .groups
            .binary_search_by(|group| (group.file, group.high).cmp(&(file, high)))
            .ok()?;
        let start = self.groups.get(group)?.start as usize;
        let end = self.groups.get(group + 1).map(|next| next.start as usize);
        let runs = self.runs.get(start..end.unwrap_or(self.runs.len()))?;
        let row = address.row as u32;
        let after = runs.partition_point(|run| run.row <= row);
        let run = runs.get(after.checked_sub(1)?)?;
        let within = row - run.row;
        (within < run.rows).then_some(FoundRow {
            slot: run.slot,
            at: (run.at != DROPPED).then(|| run.at.saturating_add(within)),
        })
    }

    fn iter(&self) -> impl Iterator<Item = Placed> {
        let ends = self.groups.iter().skip(1).map(|group| group.start as usize);
        let ends = ends.chain([self.runs.len()]);
        self.groups.iter().zip(ends).flat_map(|(group, end)| {
            let runs = self.runs.get(group.start as usize..end).unwrap_or_default();
            let high = u64::from(group.high) << 32;
            runs.iter()
                .map(move |run| (group.file, high | u64::from(run.row), *run))
        })
    }
}

/// Splits a range of rows wherever the upper 32 bits of the row number change.
fn halves(slot: SegmentSlot, run: &RowRun) -> impl Iterator<Item = Placed> {
    let file: FileKey = run.first.file;
    let (mut row, mut left, mut at) = (run.first.row, run.rows, run.at);
    std::iter::from_fn(move || {
        let rows = left
            .min((1 << 32) - u64::from(row as u32))
            .min(u64::from(u32::MAX));
        if rows == 0 {
            return None;
        }
        let packed = Packed {
            row: row as u32,
            rows: rows as u32,
            slot,
            at: at.unwrap_or(DROPPED),
        };
        let first = row;
        row = row.saturating_add(rows);
        left -= rows;
        at = at.map(|at| at.saturating_add(rows as u32));
        Some((file.bytes(), first, packed))
    })
}

/// Creates a table of the ranges in `placed`, which are in ascending order, without the segments
/// for which `alive` is false. If ranges overlap, the first range has the common rows.
fn collect(placed: impl Iterator<Item = Placed>, alive: impl Fn(SegmentSlot) -> bool) -> Index {
    let mut index = Index::default();
    let mut last: Option<([u8; 16], u64)> = None;
    for (file, row, mut run) in placed {
        if !alive(run.slot) {
            continue;
        }
        let end = match last {
            Some((of, end)) if of == file => end,
            _ => 0,
        };
        let covered = end.saturating_sub(row).min(u64::from(run.rows)) as u32;
        if covered == run.rows {
            continue;
        }
        let row = row + u64::from(covered);
        run.row = row as u32;
        run.rows -= covered;
        if run.at != DROPPED {
            run.at += covered;
        }
        last = Some((file, row + u64::from(run.rows)));
        let high = (row >> 32) as u32;
        let same = index
            .groups
            .last()
            .is_some_and(|group| (group.file, group.high) == (file, high));
        if !same {
            index.groups.push(FileGroup {
                file,
                high,
                start: index.runs.len() as u32,
            });
        }
        index.runs.push(run);
    }
    index
}

#[cfg(test)]
mod tests {
    use super::super::layout::runs;
    use super::super::testing::address;
    use super::*;

    fn index(slot: SegmentSlot, rows: &[(u8, u64, bool)]) -> Index {
        let rows = rows
            .iter()
            .map(|&(file, row, keep)| (address(file, row), keep));
        Index::new(slot, &runs(rows))
    }

    #[test]
    fn rows_are_found_where_they_are() {
        let edge = 1 << 32;
        let found = index(
            3,
            &[
                (1, 5, true),
                (1, 6, true),
                (1, 7, false),
                (1, 9, true),
                (2, edge - 1, true),
                (2, edge, true),
                (2, edge + 1, true),
                (2, edge + 2, false),
            ],
        );
        let at = |file, row| found.find(address(file, row)).map(|f| (f.slot, f.at));
        assert_eq!(at(1, 4), None);
        assert_eq!(at(1, 6), Some((3, Some(1))));
        assert_eq!(at(1, 7), Some((3, None)));
        assert_eq!(at(1, 8), None);
        assert_eq!(at(1, 9), Some((3, Some(2))));
        assert_eq!(at(2, edge - 1), Some((3, Some(3))));
        assert_eq!(at(2, edge + 1), Some((3, Some(5))));
        assert_eq!(at(2, edge + 2), Some((3, None)));
        assert_eq!((at(2, edge + 3), at(0, 0), at(3, 0)), (None, None, None));
        assert_eq!(Index::default().find(address(1, 1)), None);
    }

    #[test]
    fn merging_keeps_every_row_once_and_forgets_segments_that_are_gone() {
        let old: Vec<_> = (0..100).map(|row| (1, row, true)).collect();
        let new: Vec<_> = (50..60).chain(95..120).map(|row| (1, row, true)).collect();
        let more = index(2, &[(0, 0, true), (1, 200, false), (2, 7, true)]);
        let all = index(0, &old)
            .merged(&index(1, &new), |_| true)
            .merged(&more, |_| true);
        for row in 0..120 {
            let expected = if row < 100 {
                (0, row as u32)
            } else {
                (1, row as u32 - 85)
            };
            let found = all.find(address(1, row)).unwrap();
            assert_eq!(
                (found.slot, found.at),
                (expected.0, Some(expected.1)),
                "{row}"
            );
        }
        assert_eq!(all.find(address(2, 7)).unwrap().slot, 2);
        assert_eq!(all.find(address(1, 200)).unwrap().at, None);
        let fewer = all.merged(&Index::default(), |slot| slot != 0);
        assert_eq!(fewer.find(address(1, 3)), None);
        assert_eq!(fewer.find(address(1, 119)).unwrap().slot, 1);
    }

    #[test]
    fn memory_is_a_few_bytes_a_row() {
        let shuffled: Vec<_> = (0..10_000).map(|i| (1, i * 3, true)).collect();
        assert!(index(0, &shuffled).bytes() <= 16 * 10_000 + 24);
        let together: Vec<_> = (0..10_000).map(|i| (1, i, true)).collect();
        assert_eq!(index(0, &together).len(), 1);
    }
}
