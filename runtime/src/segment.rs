//! Segments: from positions of a window to the rows that a fragment makes of them.
//!
//! Reading is asynchronous; computing happens on the engine's rayon pool, never on a thread that
//! serves I/O. What a segment yields depends on its positions alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{filter_record_batch, prep_null_mask_filter};
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;

use crate::ahead::begun_ahead;
use crate::cached::{CachedPrefix, Found, Fresh};
use crate::fragment::row_batch::{RowBatch, SlotError};
use crate::fragment::scan::Leaf;
use crate::fragment::width::RowWidth;
use crate::job::{Env, Job, Reader, ScanRead};
use crate::kept::KeptRows;
use crate::order::{self, Place, WindowSplits};
use crate::snapshot::Snapshot;
use crate::source::{Access, Scan, StoredRows};
use crate::stage::RowStage;

/// Rows of a segment at most, whatever their size: enough to amortise the segment's own cost.
const MAX_SEGMENT_ROWS: u64 = 16_384;

/// The rows of a window, ready to be taken in any order.
#[derive(Debug)]
pub struct Window {
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    /// Rows come from the source one by one.
    Direct,
    /// Rows were read split by split.
    Staged {
        stage: Box<RowStage>,
        splits: Vec<StagedSplit>,
    },
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
            Part::Staged { splits, .. } => find_split(splits, split)?.kept.as_ref(),
        }
    }
}

fn find_split(splits: &[StagedSplit], split: u32) -> Option<&StagedSplit> {
    let index = splits.binary_search_by_key(&split, |s| s.split).ok()?;
    Some(&splits[index])
}

/// Rows of a segment for this reader: about `env.segment_bytes` of output.
pub fn segment_rows(snapshot: &Snapshot, reader: &Reader, env: &Env) -> u64 {
    let stored = snapshot.row_bytes();
    let row_bytes = RowWidth::of(reader.fragment.schema()).estimate(stored);
    (env.segment_bytes / row_bytes.max(stored).max(1)).clamp(1, MAX_SEGMENT_ROWS)
}

/// Reads what the rows of a window need, unless they can be fetched one by one or are kept.
pub async fn stage(job: &Job, reader: &Reader, window: &WindowSplits, env: &Env) -> Result<Window> {
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
        parts.push(stage_splits(job, reader, scan, wanted, env).await?);
    }
    Ok(Window { parts })
}

/// Reads splits of a scan, side by side, and stages them in their order.
async fn stage_splits(
    job: &Job,
    reader: &Reader,
    scan: usize,
    wanted: Vec<u32>,
    env: &Env,
) -> Result<Part> {
    let (snapshot, read) = (&job.snapshot, &reader.reads[scan]);
    let source = &snapshot.scans[scan].source;
    let cached = reader.cached.as_ref().filter(|cached| cached.holds(scan));
    let schema = Arc::new(source.schema().project(&read.projection)?);
    let disk = Arc::clone(&env.ctx.runtime_env().disk_manager);
    let mut stage = RowStage::new(schema, &env.memory, disk);
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
            async move { (index, split, ahead(rows)) }
        })
        .buffered(env.in_flight.max(1));
    while let Some((index, split, mut rows)) = reads.next().await {
        let base = stage.rows();
        let mut offsets = Vec::new();
        loop {
            let start = Instant::now();
            let Some(stored) = rows.recv().await else {
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
    Ok(Part::Staged {
        stage: Box::new(stage),
        splits,
    })
}

/// Leaves out the rows that the filter above the scan drops. Where the predicate fails, all rows
/// stay: the filter finds the one at fault.
fn keep(stored: StoredRows, read: &ScanRead) -> Result<StoredRows> {
    let Some(predicate) = &read.keep else {
        return Ok(stored);
    };
    let truth = predicate
        .evaluate(&stored.batch)
        .and_then(|v| v.into_array(stored.numbers.len()));
    let Ok(truth) = truth else { return Ok(stored) };
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

fn bytes_of(batch: &RecordBatch) -> u64 {
    let columns = batch.columns().iter();
    columns
        .map(|c| c.to_data().get_slice_memory_size().unwrap_or(0) as u64)
        .sum()
}

/// Reads a stream in a task of its own, a few batches ahead. The task ends when its reader is dropped.
fn ahead(mut rows: BoxStream<'static, Result<StoredRows>>) -> mpsc::Receiver<Result<StoredRows>> {
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(async move {
        while let Some(batch) = rows.next().await {
            if sender.send(batch).await.is_err() {
                break;
            }
        }
    });
    receiver
}

/// What the rows of a segment are computed from.
#[derive(Debug)]
pub struct Segment {
    window: Arc<Window>,
    by_scan: Vec<Vec<Place>>,
    /// What was read row by row, by scan.
    fetched: HashMap<usize, Fetched>,
    /// What had to be staged although its window was not, by scan.
    late: HashMap<usize, Part>,
    /// What is kept of the rows below the cache point.
    found: Option<Found>,
    pass: u64,
}

type Fetched = (RecordBatch, Vec<crate::source::ValueError>);

impl Segment {
    /// Reads what the rows at these places need. They belong to one window and stand in ascending
    /// position.
    pub async fn read(
        job: &Job,
        reader: &Reader,
        window: Arc<Window>,
        places: Vec<Place>,
        pass: u64,
        env: &Env,
    ) -> Result<Self> {
        let mut fetched = HashMap::new();
        let mut by_scan: Vec<Vec<Place>> = vec![Vec::new(); job.snapshot.scans.len()];
        match by_scan.as_mut_slice() {
            [only] => *only = places,
            many => {
                for place in places {
                    many[job.snapshot.splits[place.split as usize].scan as usize].push(place);
                }
            }
        }
        let found = match &reader.cached {
            Some(cached) => Some(find(job, cached, &mut by_scan).await),
            None => None,
        };
        let mut late = HashMap::new();
        for (scan, places) in by_scan.iter().enumerate() {
            let read = &reader.reads[scan];
            match &window.parts[scan] {
                Part::Direct if !read.projection.is_empty() => {
                    fetched.insert(scan, fetch(job, reader, scan, places, pass).await?);
                }
                Part::Direct => {}
                // Rows that were known when the window was staged may be lost since.
                Part::Staged { splits, .. } => {
                    let staged = |place: &Place| find_split(splits, place.split).is_some();
                    if !places.iter().all(staged) {
                        let mut wanted: Vec<u32> = places.iter().map(|p| p.split).collect();
                        wanted.sort_unstable();
                        wanted.dedup();
                        let part = stage_splits(job, reader, scan, wanted, env).await?;
                        late.insert(scan, part);
                    }
                }
            }
        }
        Ok(Self {
            window,
            by_scan,
            fetched,
            late,
            found,
            pass,
        })
    }

    /// Computes the segment's rows on the engine's pool.
    pub async fn compute(self, job: Arc<Job>, reader: Arc<Reader>, env: Env) -> Result<RowBatch> {
        let pool = env.pool.clone();
        let of_pool = Arc::clone(&reader);
        let rows = move || self.rows(&job, &of_pool, &env);
        let (rows, fresh) = pool.run(rows).await?;
        if let (Some(cached), Some(fresh)) = (&reader.cached, fresh) {
            cached.store(fresh).await;
        }
        Ok(rows)
    }

    /// The segment's rows, and those to be kept.
    fn rows(self, job: &Job, reader: &Reader, env: &Env) -> Result<(RowBatch, Option<Fresh>)> {
        let Self {
            window,
            by_scan,
            mut fetched,
            late,
            found,
            pass,
        } = self;
        let snapshot = &job.snapshot;
        let mut leaves = HashMap::with_capacity(by_scan.len());
        let mut below = HashMap::new();
        for (scan, places) in by_scan.into_iter().enumerate() {
            let held = reader.cached.as_ref().filter(|cached| cached.holds(scan));
            let pass = held.map_or(pass, |cached| cached.pass(pass));
            let part = late.get(&scan).unwrap_or(&window.parts[scan]);
            let leaf = match (part, fetched.remove(&scan)) {
                (Part::Staged { stage, splits }, _) => {
                    gather(snapshot, stage, splits, &places, pass)?
                }
                (Part::Direct, Some((batch, failed))) => {
                    let mut leaf = leaf(batch.columns().to_vec(), snapshot, &places, pass)?;
                    for error in failed {
                        leaf.errors.entry(error.row).or_default().push(SlotError {
                            column: Some(error.column),
                            operator: "read".to_owned(),
                            cause: error.cause,
                        });
                    }
                    leaf
                }
                (Part::Direct, None) => leaf(Vec::new(), snapshot, &places, pass)?,
            };
            let leaves = if held.is_some() {
                &mut below
            } else {
                &mut leaves
            };
            leaves.insert(Leaf::Scan(snapshot.scans[scan].occurrence), leaf);
        }
        let mut fresh = None;
        if let (Some(cached), Some(found)) = (&reader.cached, found) {
            let computed = cached.fragment.run(below, &env.ctx)?;
            let (rows, new) = cached.join(snapshot, found, computed, pass)?;
            leaves.insert(Leaf::Cache, rows);
            fresh = new;
        }
        Ok((reader.fragment.run(leaves, &env.ctx)?, fresh))
    }
}

/// Finds what is kept of the rows below the cache point, and leaves the others to be computed.
async fn find(job: &Job, cached: &CachedPrefix, by_scan: &mut [Vec<Place>]) -> Found {
    let mut wanted = Vec::new();
    for (scan, places) in by_scan.iter_mut().enumerate() {
        if cached.holds(scan) {
            wanted.append(places);
        }
    }
    wanted.sort_unstable_by_key(|place| place.position);
    let found = cached.find(&job.snapshot, wanted).await;
    for place in &found.missing {
        by_scan[job.snapshot.splits[place.split as usize].scan as usize].push(*place);
    }
    found
}

/// Reads rows one by one.
async fn fetch(
    job: &Job,
    reader: &Reader,
    scan: usize,
    places: &[Place],
    pass: u64,
) -> Result<Fetched> {
    let of_scan = &job.snapshot.scans[scan];
    let ids = job.snapshot.row_ids(places, pass);
    let files = ids
        .file
        .values()
        .iter()
        .map(|&f| job.snapshot.file_in_source(f));
    let rows: Vec<(u32, u64)> = files.zip(ids.row.values().iter().copied()).collect();
    let start = Instant::now();
    let projection = &reader.reads[scan].projection;
    let (batch, failed) = of_scan.source.fetch(&rows, projection).await?;
    reader.note_reading(start.elapsed(), bytes_of(&batch));
    Ok((batch, failed))
}

fn leaf(
    columns: Vec<ArrayRef>,
    snapshot: &Snapshot,
    places: &[Place],
    pass: u64,
) -> Result<RowBatch> {
    let rows = snapshot.row_ids(places, pass).to_array()?;
    Ok(RowBatch {
        columns,
        rows,
        errors: Default::default(),
    })
}

/// Takes the rows at `places` out of a stage; rows that pruning left out are no rows of the output.
fn gather(
    snapshot: &Snapshot,
    stage: &RowStage,
    splits: &[StagedSplit],
    places: &[Place],
    pass: u64,
) -> Result<RowBatch> {
    let mut indices = Vec::with_capacity(places.len());
    let mut kept = Vec::with_capacity(places.len());
    for place in places {
        let Some(staged) = find_split(splits, place.split) else {
            return Err(internal_datafusion_err!(
                "split {} was not staged",
                place.split
            ));
        };
        let index = match &staged.kept {
            None => Some(u64::from(place.offset)),
            Some(kept) => kept.rank(place.offset),
        };
        if let Some(index) = index {
            indices.push(staged.base + index);
            kept.push(*place);
        }
    }
    let batch = stage.gather(&indices)?;
    leaf(batch.columns().to_vec(), snapshot, &kept, pass)
}

/// All rows that `reader` makes, in stored order; positions are the rows' numbers in the snapshot.
pub fn stored_order(
    job: &Arc<Job>,
    reader: &Arc<Reader>,
    pass: u64,
    env: &Env,
) -> BoxStream<'static, Result<RowBatch>> {
    let (job, reader, env) = (Arc::clone(job), Arc::clone(reader), env.clone());
    let rows = segment_rows(&job.snapshot, &reader, &env) as usize;
    let in_flight = env.in_flight.max(1);
    let windows = order::windows(&job.snapshot, None, pass);
    let staged = stream::iter(windows)
        .map({
            let (job, reader, env) = (Arc::clone(&job), Arc::clone(&reader), env.clone());
            move |window| {
                let (job, reader, env) = (Arc::clone(&job), Arc::clone(&reader), env.clone());
                async move {
                    let staged = Arc::new(stage(&job, &reader, &window, &env).await?);
                    let snapshot = &job.snapshot;
                    let kept = |split| staged.kept(snapshot, split);
                    let mut places = order::order(snapshot, &window, None, pass, kept);
                    for place in &mut places {
                        place.position = snapshot.stored(place);
                    }
                    let segments = places.chunks(rows).map(<[Place]>::to_vec);
                    let segments: Vec<Vec<Place>> = segments.collect();
                    let of_window = move |s| Ok::<_, DataFusionError>((Arc::clone(&staged), s));
                    Ok::<_, DataFusionError>(stream::iter(segments.into_iter().map(of_window)))
                }
            }
        })
        .buffered(2)
        .try_flatten();
    let read = {
        let (job, reader, env) = (Arc::clone(&job), Arc::clone(&reader), env.clone());
        move |work: Result<(Arc<Window>, Vec<Place>)>| {
            let (job, reader, env) = (Arc::clone(&job), Arc::clone(&reader), env.clone());
            async move {
                let (window, places) = work?;
                Segment::read(&job, &reader, window, places, pass, &env).await
            }
        }
    };
    let compute = move |segment: Result<Segment>| {
        let (job, reader, env) = (Arc::clone(&job), Arc::clone(&reader), env.clone());
        async move { segment?.compute(job, reader, env).await }
    };
    let read = begun_ahead(staged, in_flight, read, Err);
    begun_ahead(read, in_flight, compute, Err).boxed()
}
