//! Windows: rows that are read together and can be taken in any order.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::{concat_batches, interleave_record_batch};
use datafusion::common::{Result, internal_err};

use crate::order::row_bitmap::RowBitmap;
use crate::order::{RowLocation, Snapshot};
use crate::stage::{RowStage, StagePart};

/// The rows of a window, ready to be taken in any order.
#[derive(Debug)]
pub(crate) struct Window {
    /// The staged rows of each scan; `None` if rows of the scan are not staged, because its source
    /// has direct access or no column is read.
    pub(super) parts: Vec<Option<Staged>>,
}

/// The rows of some splits of a scan. The splits were read one by one, and the rows are held in
/// memory or spilled.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(super) stage: RowStage,
    /// The splits of these rows, by ascending index into the snapshot's splits.
    pub(super) splits: Vec<StagedSplit>,
}

/// The staged rows of a split.
#[derive(Debug)]
pub(super) struct StagedSplit {
    /// Index into the snapshot's splits.
    pub(super) split: u32,
    /// Number in the stage of the split's first staged row.
    pub(super) base: u64,
    /// Offsets of the staged rows from the first row of the split; `None` if all rows of the split
    /// are staged.
    pub(super) kept: Option<Arc<RowBitmap>>,
    /// True if the stage has a place for each row of the split, staged or not.
    pub(super) is_spread: bool,
}

impl Window {
    /// Returns the offsets of the rows of `split` that remained after pruning; `None` if pruning
    /// removed no row of `split`.
    pub(crate) fn kept(&self, snapshot: &Snapshot, split: u32) -> Option<&RowBitmap> {
        let scan = snapshot.splits[split as usize].scan;
        self.parts[scan as usize]
            .as_ref()?
            .find(split)?
            .kept
            .as_deref()
    }

    /// Returns the memory that the staged rows take, in bytes.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        let staged = self.parts.iter().flatten();
        staged.map(|s| s.stage.reserved_bytes() as u64).sum()
    }
}

impl StagedSplit {
    /// Returns the index in the stage of the row at `offset` in the split; `None` if pruning
    /// removed the row. `is_kept` is true if pruning is known not to have removed it.
    fn index(&self, offset: u32, is_kept: bool) -> Option<u64> {
        let place = match &self.kept {
            Some(kept) if !self.is_spread => kept.rank(offset)?,
            Some(kept) if !is_kept => kept.rank(offset).map(|_| offset.into())?,
            _ => offset.into(),
        };
        Some(self.base + place)
    }
}

impl Staged {
    /// Joins the batches of the stage; see [`RowStage::join`].
    pub(super) fn join(&mut self, snapshot: &Snapshot) -> Result<()> {
        // Splits are in the stage in the order of their reads.
        let mut splits: Vec<&mut StagedSplit> = self.splits.iter_mut().collect();
        splits.sort_unstable_by_key(|split| split.base);
        let parts = splits.iter().map(|split| StagePart {
            places: snapshot.splits[split.split as usize].rows,
            taken: split.kept.clone(),
        });
        let parts: Vec<StagePart> = parts.collect();
        if self.stage.join(&parts)? {
            let mut base = 0;
            for (split, part) in splits.into_iter().zip(&parts) {
                (split.base, split.is_spread) = (base, true);
                base += part.places;
            }
        }
        Ok(())
    }

    fn find(&self, split: u32) -> Option<&StagedSplit> {
        let index = self.splits.binary_search_by_key(&split, |s| s.split).ok()?;
        Some(&self.splits[index])
    }

    /// Returns true if the split was staged, even if none of its rows remained after pruning.
    pub(crate) fn has(&self, split: u32) -> bool {
        self.find(split).is_some()
    }
}

/// Returns the staged rows of scan `scan` in each window; `None` if the scan's rows are not staged.
pub(super) fn stages(windows: &[Arc<Window>], scan: usize) -> Option<Vec<&Staged>> {
    { windows.iter() }
        .map(|window| window.parts[scan].as_ref())
        .collect()
}

/// Number of splits that [`gather`] remembers: all of a window, in most cases.
const REMEMBERED: usize = 256;

/// Reads the rows at `places` from `stages`. Returns the columns and locations of the rows, without
/// the rows that pruning removed. `are_kept` is true if it is known to have removed none.
pub(crate) fn gather(
    stages: &[&Staged],
    mut places: Vec<RowLocation>,
    are_kept: bool,
) -> Result<(Vec<ArrayRef>, Vec<RowLocation>)> {
    let mut indices: Vec<Vec<u64>> = vec![Vec::new(); stages.len()];
    if let [only] = &mut *indices {
        only.reserve_exact(places.len());
    }
    // The window and the index in its rows of each kept row; not needed with one window.
    let mut picks = Vec::new();
    let mut kept = 0;
    // A search for each row would take as long as reading the row, so splits that were found are remembered.
    let mut found: [Option<(&StagedSplit, usize)>; REMEMBERED] = [None; REMEMBERED];
    for at in 0..places.len() {
        let place = places[at];
        let known = &mut found[place.row.split as usize % REMEMBERED];
        if known.is_none_or(|(of, _)| of.split != place.row.split) {
            let mut each = stages.iter().zip(0..);
            *known = each.find_map(|(staged, nth)| Some((staged.find(place.row.split)?, nth)));
        }
        let Some((split, nth)) = *known else {
            return internal_err!("split {} was not staged", place.row.split);
        };
        if let Some(index) = split.index(place.row.offset, are_kept) {
            if stages.len() > 1 {
                picks.push((nth, indices[nth].len()));
            }
            indices[nth].push(index);
            if kept < at {
                places[kept] = place;
            }
            kept += 1;
        }
    }
    places.truncate(kept);
    let gathered = stages.iter().zip(&indices);
    let batches = gathered
        .map(|(staged, rows)| staged.stage.gather(rows))
        .collect::<Result<Vec<_>>>()?;
    if let Some(only) = batches.iter().find(|b| b.num_rows() == kept) {
        return Ok((only.columns().to_vec(), places));
    }
    // A segment at the end of a window has the rows of that window before those of the next one.
    let is_simple = stages.iter().all(|staged| staged.stage.is_simple());
    let rows = if is_simple && picks.is_sorted() && !picks.is_empty() {
        concat_batches(batches[0].schema_ref(), &batches)?
    } else {
        let batches: Vec<&RecordBatch> = batches.iter().collect();
        interleave_record_batch(&batches, &picks)?
    };
    Ok((rows.columns().to_vec(), places))
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Float32Array, UInt64Array};
    use arrow::datatypes::UInt64Type;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};

    use super::*;
    use crate::order::StoredRow;
    use crate::order::tests::snapshot;
    use crate::stage::SpillSpace;

    /// The rows of a split at `offsets`; a value tells split and offset.
    fn batch(split: u32, offsets: &[u32]) -> RecordBatch {
        let value = |offset: &u32| u64::from(100 * split + offset);
        let values: ArrayRef = Arc::new(UInt64Array::from_iter_values(offsets.iter().map(value)));
        let halves = offsets.iter().map(|offset| *offset as f32 / 2.0);
        let halves: ArrayRef = Arc::new(Float32Array::from_iter_values(halves));
        RecordBatch::try_from_iter([("value", values), ("half", halves)]).unwrap()
    }

    /// Stages splits of 6, 4, 5 and 3 rows, which are read in another order than their own. Some rows were
    /// pruned, all of the last split among them.
    fn staged(snapshot: &Snapshot, joins: bool) -> Staged {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(usize::MAX));
        let space = Arc::new(SpillSpace::default());
        let mut stage = RowStage::new(batch(0, &[]).schema(), &pool, space);
        let mut splits = Vec::new();
        let reads: [(u32, &[u32]); 4] = [
            (2, &[0, 2, 3]),
            (3, &[]),
            (0, &[1, 2, 4, 5]),
            (1, &[0, 1, 2, 3]),
        ];
        for (split, offsets) in reads {
            let is_whole = snapshot.splits[split as usize].rows == offsets.len() as u64;
            let kept = (!is_whole).then(|| Arc::new(RowBitmap::new(offsets.iter().copied())));
            splits.push(StagedSplit {
                split,
                base: stage.rows(),
                kept,
                is_spread: false,
            });
            stage.push(batch(split, offsets)).unwrap();
        }
        splits.sort_unstable_by_key(|split| split.split);
        let mut staged = Staged { stage, splits };
        if joins {
            staged.join(snapshot).unwrap();
        }
        staged
    }

    #[test]
    fn rows_that_were_pruned_are_left_out_wherever_rows_are() {
        let snapshot = snapshot(&[&[6, 4], &[5, 3]], 0..u64::MAX);
        let rows = |rows: &[(u32, u32)]| -> Vec<RowLocation> {
            let rows = rows
                .iter()
                .map(|&(split, offset)| StoredRow { split, offset });
            (0..).zip(rows).map(|(at, row)| row.at(at, 7)).collect()
        };
        let kept = [(1, 3), (2, 2), (0, 5), (0, 1), (1, 0), (2, 3)];
        let all = [
            (0, 0),
            (1, 3),
            (3, 0),
            (2, 1),
            (2, 2),
            (2, 4),
            (0, 5),
            (3, 2),
        ];
        for (joins, are_kept, asked, expected) in [
            (true, true, &kept[..], vec![103, 202, 5, 1, 100, 203]),
            (true, false, &all[..], vec![103, 202, 5]),
            (false, true, &kept[..], vec![103, 202, 5, 1, 100, 203]),
            (false, false, &all[..], vec![103, 202, 5]),
        ] {
            let staged = staged(&snapshot, joins);
            assert!(staged.splits.iter().all(|split| split.is_spread == joins));
            let (columns, places) = gather(&[&staged], rows(asked), are_kept).unwrap();
            assert_eq!(
                columns[0].as_primitive::<UInt64Type>().values(),
                &expected[..]
            );
            let found = places
                .iter()
                .map(|place| 100 * place.row.split + place.row.offset);
            assert!(found.map(u64::from).eq(expected));
        }
    }
}
