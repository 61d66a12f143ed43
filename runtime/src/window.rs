//! Windows: rows that are read together, ready to be taken in any order.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::{filter_record_batch, interleave_record_batch, prep_null_mask_filter};
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use futures::StreamExt;
use futures::stream;

use crate::fragment::unwind::caught;
use crate::job::{Env, Job, Reader, ScanRead};
use crate::kept::KeptRows;
use crate::order::{Place, WindowSplits};
use crate::snapshot::Snapshot;
use crate::source::{Access, Scan, StoredRows};
use crate::stage::RowStage;
use crate::task::read_ahead;

/// Batches of a split that are read before they are staged.
const BATCHES_AHEAD: usize = 2;

/// The rows of a window, ready to be taken in any order.
#[derive(Debug)]
pub struct Window {
    parts: Vec<Part>,
}

/// What of a window one scan reads.
#[derive(Debug)]
pub(crate) enum Part {
    /// Rows come from the source one by one.
    Direct,
    /// Rows were read split by split.
    Staged(Box<Staged>),
}

/// Rows of splits that were read.
#[derive(Debug)]
pub(crate) struct Staged {
    stage: RowStage,
    /// By ascending split.
    splits: Vec<StagedSplit>,
}

/// The rows of a window's split that are in the stage.
#[derive(Debug)]
struct StagedSplit {
    /// Index into the snapshot's splits.
    split: u32,
    /// Index in the stage of the first of them.
    base: u64,
    /// Which they are, where some rows of it are left out.
    kept: Option<KeptRows>,
}

impl Window {
    /// The rows of a split that are left, where pruning left some out.
    pub fn kept(&self, snapshot: &Snapshot, split: u32) -> Option<&KeptRows> {
        match &self.parts[snapshot.splits[split as usize].scan as usize] {
            Part::Direct => None,
            Part::Staged(staged) => staged.find(split)?.kept.as_ref(),
        }
    }

    /// What a scan reads of the window.
    pub(crate) fn part(&self, scan: usize) -> &Part {
        &self.parts[scan]
    }
}

impl StagedSplit {
    /// Where the stage has a row of the split; `None` where pruning left it out.
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

    /// Takes the rows at `places` out, as [`gather`] does.
    fn gather(&self, mut places: Vec<Place>) -> Result<(RecordBatch, Vec<Place>)> {
        let mut rows = Vec::with_capacity(places.len());
        let mut split: Option<&StagedSplit> = None;
        for at in 0..places.len() {
            let place = places[at];
            // Where nothing is shuffled, a row is of the same split as the one before it.
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

    /// Whether a split was read, if only to find that none of its rows are left.
    pub(crate) fn has(&self, split: u32) -> bool {
        self.find(split).is_some()
    }
}

/// Takes the rows at `places` out of stages, one of which has each of them; rows that pruning left out are no
/// rows of the output. Answers the rows, and the places that they were at.
pub(crate) fn gather(stages: &[&Staged], places: Vec<Place>) -> Result<(RecordBatch, Vec<Place>)> {
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
    // A stage that gives nothing is asked only where none does, for its schema.
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

fn not_staged(place: &Place) -> DataFusionError {
    internal_datafusion_err!("split {} was not staged", place.split)
}

/// Reads what the rows of a window need, unless they can be fetched one by one or are kept.
pub(crate) async fn stage(
    job: &Job,
    reader: &Reader,
    window: &WindowSplits,
    env: &Env,
) -> Result<Window> {
    let snapshot = &job.snapshot;
    let mut parts = Vec::with_capacity(snapshot.scans.len());
    for (scan, (of_scan, read)) in snapshot.scans.iter().zip(&reader.reads).enumerate() {
        if of_scan.source.access() == Access::Direct || read.projection.is_empty() {
            parts.push(Part::Direct);
            continue;
        }
        let of_scan = |index: &u32| snapshot.splits[*index as usize].scan == scan as u32;
        let mut wanted: Vec<u32> = window.splits.iter().copied().filter(of_scan).collect();
        if let Some(cached) = reader.cached.as_ref().filter(|cached| cached.holds(scan)) {
            wanted.retain(|&split| !cached.knows(snapshot, split));
        }
        let staged = stage_splits(job, reader, scan, wanted, env).await?;
        parts.push(Part::Staged(Box::new(staged)));
    }
    Ok(Window { parts })
}

/// Reads splits of a scan, side by side, and stages them in their order.
pub(crate) async fn stage_splits(
    job: &Job,
    reader: &Reader,
    scan: usize,
    wanted: Vec<u32>,
    env: &Env,
) -> Result<Staged> {
    let (snapshot, read) = (&job.snapshot, &reader.reads[scan]);
    let source = &snapshot.scans[scan].source;
    let cached = reader.cached.as_ref().filter(|cached| cached.holds(scan));
    let schema = Arc::new(source.schema().project(&read.projection)?);
    let mut stage = RowStage::new(schema, &env.memory, Arc::clone(&env.spill));
    let mut splits = Vec::new();
    let request = Scan {
        projection: read.projection.clone(),
        prune: read.prune.clone(),
    };
    let mut reads = stream::iter(wanted)
        .map(|index| {
            let split = snapshot.splits[index as usize];
            let file = snapshot.file_in_source(split.file) as usize;
            let rows = source.read_split(file, split.split as usize, &request);
            async move { (index, split, read_ahead(rows, BATCHES_AHEAD)) }
        })
        .buffered(env.in_flight.max(1));
    while let Some((index, split, mut rows)) = reads.next().await {
        let base = stage.rows();
        let mut offsets = Vec::new();
        loop {
            let start = Instant::now();
            let Some(stored) = rows.next().await else {
                break;
            };
            let stored = keep(stored?, read)?;
            reader.note_reading(start.elapsed(), bytes_of(&stored.batch));
            // A LIMIT may leave a part of the split, whose rows come in ascending order.
            let end = split.first_row + split.rows;
            let from = stored.numbers.partition_point(|&row| row < split.first_row);
            let to = stored.numbers.partition_point(|&row| row < end);
            let numbers = &stored.numbers[from..to];
            offsets.extend(numbers.iter().map(|row| (row - split.first_row) as u32));
            stage.push(stored.batch.slice(from, to - from))?;
        }
        let dense = offsets.len() as u64 == split.rows && offsets.first() == Some(&0);
        if let (Some(cached), false) = (cached, dense) {
            cached.note_dropped(snapshot, index, &offsets).await;
        }
        splits.push(StagedSplit {
            split: index,
            base,
            kept: (!dense).then(|| KeptRows::new(offsets)),
        });
    }
    splits.sort_unstable_by_key(|s| s.split);
    Ok(Staged { stage, splits })
}

/// Leaves out the rows that the filter above the scan drops. Where the predicate fails, all rows
/// stay: the filter finds the one at fault.
fn keep(stored: StoredRows, read: &ScanRead) -> Result<StoredRows> {
    let Some(predicate) = &read.keep else {
        return Ok(stored);
    };
    let rows = stored.numbers.len();
    if rows == 0 {
        return Ok(stored);
    }
    let truth = caught(|| predicate.evaluate(&stored.batch)?.into_array(rows));
    let Ok(Ok(truth)) = truth else {
        return Ok(stored);
    };
    let truth = truth.as_boolean();
    let truth = if truth.null_count() > 0 {
        &prep_null_mask_filter(truth)
    } else {
        truth
    };
    if truth.true_count() == truth.len() {
        return Ok(stored);
    }
    let batch = filter_record_batch(&stored.batch, truth)?;
    let numbers = truth
        .values()
        .set_indices()
        .map(|i| stored.numbers[i])
        .collect();
    Ok(StoredRows { batch, numbers })
}

pub(crate) fn bytes_of(batch: &RecordBatch) -> u64 {
    let columns = batch.columns().iter();
    columns
        .map(|c| c.to_data().get_slice_memory_size().unwrap_or(0) as u64)
        .sum()
}
