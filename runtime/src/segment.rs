//! Segments: from positions of a window to the rows that a fragment makes of them.
//!
//! Reading is asynchronous; computing happens on the engine's rayon pool, never on a thread that
//! serves I/O. What a segment yields depends on its positions alone.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::common::{DataFusionError, Result};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use crate::cached::{CachedPrefix, Found, Fresh};
use crate::fragment::evaluate::is_oversized;
use crate::fragment::row_batch::{RowBatch, SlotError};
use crate::fragment::scan::Leaf;
use crate::fragment::width::RowWidth;
use crate::job::{Env, Job, Reader};
use crate::order::{self, Place, StoredRow};
use crate::snapshot::Snapshot;
use crate::task::begun_ahead;
use crate::window::{Part, Staged, Window, bytes_of, gather, stage, stage_splits};

/// Rows of a segment at most, whatever their size: enough to amortise the segment's own cost.
const MAX_SEGMENT_ROWS: u64 = 16_384;

/// Rows of a segment for this reader: about `env.segment_bytes` of output.
pub fn segment_rows(snapshot: &Snapshot, reader: &Reader, env: &Env) -> u64 {
    let stored = snapshot.row_bytes();
    let row_bytes = RowWidth::of(reader.fragment.schema()).estimate(stored);
    (env.segment_bytes / row_bytes.max(stored).max(1)).clamp(1, MAX_SEGMENT_ROWS)
}

/// What the rows of a segment are computed from.
#[derive(Debug)]
pub struct Segment {
    windows: Vec<Arc<Window>>,
    by_scan: Vec<Vec<Place>>,
    /// What was read row by row, by scan.
    fetched: HashMap<usize, Fetched>,
    /// What had to be staged although its window was not, by scan.
    late: HashMap<usize, Staged>,
    /// What is kept of the rows below the cache point.
    found: Option<Found>,
}

type Fetched = (RecordBatch, Vec<crate::source::ValueError>);

impl Segment {
    /// Reads what the rows at these places need. They belong to these windows and stand in ascending
    /// position.
    pub async fn read(
        job: &Job,
        reader: &Reader,
        windows: Vec<Arc<Window>>,
        places: Vec<Place>,
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
            let Some(staged) = stages(&windows, scan) else {
                if !read.projection.is_empty() {
                    fetched.insert(scan, fetch(job, reader, scan, places).await?);
                }
                continue;
            };
            // Rows that were known when the window was staged may be lost since.
            let mut known = None;
            let mut is_staged = |place: &Place| {
                let same = known.replace(place.split) == Some(place.split);
                same || staged.iter().any(|s| s.has(place.split))
            };
            if !places.iter().all(&mut is_staged) {
                let mut wanted: Vec<u32> = places.iter().map(|p| p.split).collect();
                wanted.sort_unstable();
                wanted.dedup();
                late.insert(scan, stage_splits(job, reader, scan, wanted, env).await?);
            }
        }
        Ok(Self {
            windows,
            by_scan,
            fetched,
            late,
            found,
        })
    }

    /// Computes the segment's rows on the engine's pool: one piece in nearly every case, several in their order where
    /// the rows do not fit into one batch.
    pub async fn compute(
        self,
        job: Arc<Job>,
        reader: Arc<Reader>,
        env: Env,
    ) -> Result<Vec<RowBatch>> {
        let pool = env.pool.clone();
        let of_pool = Arc::clone(&reader);
        let computed = move || {
            let mut pieces = Vec::new();
            let leaves = self.leaves(&job, &of_pool)?;
            compute_pieces(leaves, &job, &of_pool, &env, &mut pieces)?;
            Ok(pieces)
        };
        let mut rows = Vec::with_capacity(1);
        for (piece, fresh) in pool.run(computed).await? {
            if let (Some(cached), Some(fresh)) = (&reader.cached, fresh) {
                cached.store(fresh).await;
            }
            rows.push(piece);
        }
        Ok(rows)
    }

    /// The rows that the segment's fragments begin with.
    fn leaves(self, job: &Job, reader: &Reader) -> Result<Leaves> {
        let Self {
            windows,
            by_scan,
            mut fetched,
            late,
            found,
        } = self;
        let snapshot = &job.snapshot;
        let mut above = HashMap::with_capacity(by_scan.len());
        let mut below = HashMap::new();
        for (scan, mut places) in by_scan.into_iter().enumerate() {
            let held = reader.cached.as_ref().filter(|cached| cached.holds(scan));
            if let Some(cached) = held {
                for place in &mut places {
                    place.pass = cached.pass(place.pass);
                }
            }
            let staged = match late.get(&scan) {
                Some(late) => Some(vec![late]),
                None => stages(&windows, scan),
            };
            let leaf = match (staged, fetched.remove(&scan)) {
                (Some(staged), _) => {
                    let (batch, places) = gather(&staged, places)?;
                    leaf(batch.columns().to_vec(), snapshot, &places)?
                }
                (None, Some((batch, failed))) => {
                    let mut leaf = leaf(batch.columns().to_vec(), snapshot, &places)?;
                    for error in failed {
                        leaf.errors.entry(error.row).or_default().push(SlotError {
                            column: Some(error.column),
                            operator: "read".to_owned(),
                            cause: error.cause,
                        });
                    }
                    leaf
                }
                (None, None) => leaf(Vec::new(), snapshot, &places)?,
            };
            let leaves = if held.is_some() {
                &mut below
            } else {
                &mut above
            };
            leaves.insert(Leaf::Scan(snapshot.scans[scan].occurrence), leaf);
        }
        Ok(Leaves {
            above,
            below,
            found,
        })
    }
}

/// The rows that a segment's fragments begin with, by leaf, each leaf in ascending position.
#[derive(Debug, Clone)]
struct Leaves {
    /// Of the fragment.
    above: HashMap<Leaf, RowBatch>,
    /// Of the cached prefix.
    below: HashMap<Leaf, RowBatch>,
    /// What is kept of the rows below the cache point.
    found: Option<Found>,
}

impl Leaves {
    /// Takes out the first half of the rows; `None` where all of them have one position.
    fn take_half(&mut self) -> Result<Option<Self>> {
        let mut positions: Vec<u64> = Vec::new();
        for leaf in self.above.values().chain(self.below.values()) {
            positions.extend(leaf.row_ids()?.position.values());
        }
        positions.extend(self.found.iter().flat_map(Found::positions));
        positions.sort_unstable();
        positions.dedup();
        if positions.len() < 2 {
            return Ok(None);
        }
        let middle = positions[positions.len() / 2];
        Ok(Some(Self {
            above: take_before(&mut self.above, middle)?,
            below: take_before(&mut self.below, middle)?,
            found: self.found.as_mut().map(|found| found.take_before(middle)),
        }))
    }

    /// Computes the rows; and those to be kept.
    fn compute(
        mut self,
        job: &Job,
        reader: &Reader,
        env: &Env,
    ) -> Result<(RowBatch, Option<Fresh>)> {
        let mut fresh = None;
        if let (Some(cached), Some(found)) = (&reader.cached, &self.found) {
            let computed = cached.fragment.run(self.below, &env.ctx)?;
            let (rows, new) = cached.join(&job.snapshot, found, computed)?;
            self.above.insert(Leaf::Cache, rows);
            fresh = new;
        }
        Ok((reader.fragment.run(self.above, &env.ctx)?, fresh))
    }
}

/// Takes the rows before a position out of each leaf.
fn take_before(
    leaves: &mut HashMap<Leaf, RowBatch>,
    position: u64,
) -> Result<HashMap<Leaf, RowBatch>> {
    let mut taken = HashMap::with_capacity(leaves.len());
    for (&leaf, rows) in leaves {
        let positions = rows.row_ids()?.position;
        let before = positions.values().partition_point(|at| *at < position);
        taken.insert(leaf, rows.slice(0, before));
        *rows = rows.slice(before, rows.len() - before);
    }
    Ok(taken)
}

/// Computes the rows of a segment, half by half where they do not fit into one batch.
fn compute_pieces(
    mut leaves: Leaves,
    job: &Job,
    reader: &Reader,
    env: &Env,
    pieces: &mut Vec<(RowBatch, Option<Fresh>)>,
) -> Result<()> {
    match leaves.clone().compute(job, reader, env) {
        Ok(piece) => pieces.push(piece),
        Err(error) if is_oversized(&error) => {
            let Some(first) = leaves.take_half()? else {
                return Err(error);
            };
            compute_pieces(first, job, reader, env, pieces)?;
            compute_pieces(leaves, job, reader, env, pieces)?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
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
async fn fetch(job: &Job, reader: &Reader, scan: usize, places: &[Place]) -> Result<Fetched> {
    let of_scan = &job.snapshot.scans[scan];
    let ids = job.snapshot.row_ids(places);
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

/// The stages of a scan; `None` where its rows come from the source one by one.
fn stages(windows: &[Arc<Window>], scan: usize) -> Option<Vec<&Staged>> {
    let parts = windows.iter().map(|window| window.part(scan));
    let staged = parts.map(|part| match part {
        Part::Staged(staged) => Some(staged.as_ref()),
        Part::Direct => None,
    });
    staged.collect()
}

fn leaf(columns: Vec<ArrayRef>, snapshot: &Snapshot, places: &[Place]) -> Result<RowBatch> {
    let rows = snapshot.row_ids(places).to_array()?;
    Ok(RowBatch {
        columns,
        rows,
        errors: Default::default(),
    })
}

/// The rows that `reader` makes of some splits, in stored order; positions are the rows' numbers in the snapshot.
pub fn stored_order(
    job: &Arc<Job>,
    reader: &Arc<Reader>,
    splits: Range<u32>,
    pass: u64,
    env: &Env,
) -> BoxStream<'static, Result<RowBatch>> {
    let (job, reader, env) = (Arc::clone(job), Arc::clone(reader), env.clone());
    let rows = segment_rows(&job.snapshot, &reader, &env) as usize;
    let in_flight = env.in_flight.max(1);
    let windows = order::windows(&job.snapshot, splits, None, pass);
    let staged = stream::iter(windows)
        .map({
            let (job, reader, env) = (Arc::clone(&job), Arc::clone(&reader), env.clone());
            move |window| {
                let (job, reader, env) = (Arc::clone(&job), Arc::clone(&reader), env.clone());
                async move {
                    let staged = Arc::new(stage(&job, &reader, &window, &env).await?);
                    let snapshot = &job.snapshot;
                    let kept = |split| staged.kept(snapshot, split);
                    let places =
                        order::order(snapshot, &window, None, pass, env.order_limit(), kept)?;
                    let at = |row: StoredRow| row.at(snapshot.stored(row), pass);
                    let places: Vec<Place> = places.into_iter().map(at).collect();
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
                Segment::read(&job, &reader, vec![window], places, &env).await
            }
        }
    };
    let compute = move |segment: Result<Segment>| {
        let (job, reader, env) = (Arc::clone(&job), Arc::clone(&reader), env.clone());
        async move { segment?.compute(job, reader, env).await }
    };
    let read = begun_ahead(staged, in_flight, read, Err);
    begun_ahead(read, in_flight, compute, Err)
        .map_ok(|pieces| stream::iter(pieces.into_iter().map(Ok)))
        .try_flatten()
        .boxed()
}
