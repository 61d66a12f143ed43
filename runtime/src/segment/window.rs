//! Windows: rows that are read together and can be taken in any order.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::{concat_batches, interleave_record_batch};
use datafusion::common::{Result, internal_err};

use crate::order::row_bitmap::RowBitmap;
use crate::order::{RowLocation, Snapshot};
use crate::stage::RowStage;

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
    /// Index in the stage of the split's first staged row.
    pub(super) base: u64,
    /// Offsets of the staged rows from the first row of the split; `None` if all rows of the split
    /// are staged.
    pub(super) kept: Option<Arc<RowBitmap>>,
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
    /// removed the row.
    fn index(&self, offset: u32) -> Option<u64> {
        let rank = match &self.kept {
            None => u64::from(offset),
            Some(kept) => kept.rank(offset)?,
        };
        Some(self.base + rank)
    }
}

impl Staged {
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
/// the rows that pruning removed.
pub(crate) fn gather(
    stages: &[&Staged],
    mut places: Vec<RowLocation>,
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
        if let Some(index) = split.index(place.row.offset) {
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
