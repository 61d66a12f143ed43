//! Windows: rows that are read together and can be taken in any order.

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};

use crate::order::row_bitmap::RowBitmap;
use crate::order::{RowLocation, Snapshot};
use crate::stage::RowStage;

/// The rows of a window, ready to be taken in any order.
#[derive(Debug)]
pub(crate) struct Window {
    pub(super) parts: Vec<Part>,
}

/// The rows of a window that belong to one scan.
#[derive(Debug)]
pub(crate) enum Part {
    /// The source has direct access: rows are read from it one by one.
    Direct,
    /// The rows were read split by split, and are held in memory or spilled.
    Staged(Box<Staged>),
}

/// The staged rows of some splits.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(super) stage: RowStage,
    /// The splits, ascending.
    pub(super) splits: Vec<StagedSplit>,
}

/// The staged rows of a split.
#[derive(Debug)]
pub(super) struct StagedSplit {
    /// Index into the snapshot's splits.
    pub(super) split: u32,
    /// Index in the stage of the split's first row.
    pub(super) base: u64,
    /// Offsets in the split of the staged rows; `None` if all rows of the split are staged.
    pub(super) kept: Option<RowBitmap>,
}

impl Window {
    /// Returns the rows of a split that remained after pruning; `None` if all did.
    pub(crate) fn kept(&self, snapshot: &Snapshot, split: u32) -> Option<&RowBitmap> {
        match &self.parts[snapshot.splits[split as usize].scan as usize] {
            Part::Direct => None,
            Part::Staged(staged) => staged.find(split)?.kept.as_ref(),
        }
    }

    /// Returns the memory that the staged rows take, in bytes.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        let bytes = self.parts.iter().map(|part| match part {
            Part::Direct => 0,
            Part::Staged(staged) => staged.stage.reserved_bytes() as u64,
        });
        bytes.sum()
    }

    /// Returns the part of the window that belongs to a scan.
    pub(crate) fn part(&self, scan: usize) -> &Part {
        &self.parts[scan]
    }
}

impl StagedSplit {
    /// Returns the index in the stage of the row at `offset`; `None` if pruning removed the row.
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

    /// Returns the rows at `places`; see [`gather`].
    fn gather(&self, mut places: Vec<RowLocation>) -> Result<(RecordBatch, Vec<RowLocation>)> {
        let mut rows = Vec::with_capacity(places.len());
        let mut split: Option<&StagedSplit> = None;
        for at in 0..places.len() {
            let place = places[at];
            // Without a shuffle, consecutive rows mostly belong to one split, so the last one is
            // tried first.
            let of = match split {
                Some(of) if of.split == place.split => of,
                _ => self.find(place.split).ok_or_else(|| not_staged(&place))?,
            };
            split = Some(of);
            if let Some(index) = of.index(place.offset) {
                places[rows.len()] = place;
                rows.push(index);
            }
        }
        places.truncate(rows.len());
        Ok((self.stage.gather(&rows)?, places))
    }

    /// Returns true if the split was staged, even if none of its rows remained after pruning.
    pub(crate) fn has(&self, split: u32) -> bool {
        self.find(split).is_some()
    }
}

/// Reads the rows at `places` from the stages that hold their splits. Returns the rows with their
/// locations, without the rows that pruning removed.
pub(crate) fn gather(
    stages: &[&Staged],
    places: Vec<RowLocation>,
) -> Result<(RecordBatch, Vec<RowLocation>)> {
    if let [only] = stages {
        return only.gather(places);
    }
    let mut indices = vec![Vec::new(); stages.len()];
    let mut picks = Vec::with_capacity(places.len());
    let mut kept = Vec::with_capacity(places.len());
    for place in places {
        let mut found = stages.iter().zip(0..);
        let found = found.find_map(|(staged, nth)| Some((staged.find(place.split)?, nth)));
        let (split, nth) = found.ok_or_else(|| not_staged(&place))?;
        if let Some(index) = split.index(place.offset) {
            let of_stage: &mut Vec<u64> = &mut indices[nth];
            picks.push((nth, of_stage.len()));
            of_stage.push(index);
            kept.push(place);
        }
    }
    let taken = stages.iter().zip(&indices).enumerate();
    // If no stage has any of the rows, the first stage returns an empty batch, which has the
    // schema.
    let asked = taken.filter(|(nth, (_, rows))| !rows.is_empty() || *nth == 0 && picks.is_empty());
    let batches = asked
        .map(|(nth, (staged, rows))| Ok((nth, staged.stage.gather(rows)?)))
        .collect::<Result<Vec<_>>>()?;
    if let [(_, only)] = batches.as_slice() {
        return Ok((only.clone(), kept));
    }
    let rank = |nth: usize| batches.iter().position(|(of, _)| *of == nth).unwrap_or(0);
    let ranks: Vec<usize> = (0..stages.len()).map(rank).collect();
    for (nth, _) in &mut picks {
        *nth = ranks[*nth];
    }
    let batches: Vec<&RecordBatch> = batches.iter().map(|(_, batch)| batch).collect();
    Ok((interleave_record_batch(&batches, &picks)?, kept))
}

fn not_staged(place: &RowLocation) -> DataFusionError {
    internal_datafusion_err!("split {} was not staged", place.split)
}
