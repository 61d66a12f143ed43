//! Reads and computes segments: from row locations to the rows that a fragment computes.
//!
//! Reading is asynchronous. Computing happens on the engine's rayon pool, never on a thread that serves I/O. The
//! output of a segment depends only on its places.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::common::Result;

use super::cached_prefix::{CachedPrefix, Found, Fresh};
use super::context::SegmentContext;
use super::data::StoredData;
use super::staging::{bytes_of, stage_splits};
use super::window::{Part, Staged, Window, gather};
use crate::fragment::evaluate::is_oversized;
use crate::fragment::row_batch::{RowBatch, SlotError};
use crate::fragment::scan::Leaf;
use crate::order::{RowLocation, Snapshot};

/// The stored rows from which a segment is computed.
#[derive(Debug)]
pub(crate) struct Segment {
    windows: Vec<Arc<Window>>,
    by_scan: Vec<Vec<RowLocation>>,
    /// Rows that were read one by one, by scan.
    fetched: HashMap<usize, Fetched>,
    /// Splits of a scan that had to be staged later, although they were left out when their window was staged.
    late: HashMap<usize, Staged>,
    /// Rows below the cache point: those read from the cache, and those to be computed.
    found: Option<Found>,
}

type Fetched = (RecordBatch, Vec<crate::source::ValueError>);

impl Segment {
    /// Reads the stored rows at `places`, which belong to `windows` and are sorted by position.
    pub(crate) async fn read(
        context: &SegmentContext,
        windows: Vec<Arc<Window>>,
        places: Vec<RowLocation>,
    ) -> Result<Self> {
        let SegmentContext { data, reader, .. } = context;
        let mut fetched = HashMap::new();
        let mut by_scan: Vec<Vec<RowLocation>> = vec![Vec::new(); data.snapshot.scans.len()];
        match by_scan.as_mut_slice() {
            [only] => *only = places,
            many => {
                for place in places {
                    many[data.snapshot.splits[place.split as usize].scan as usize].push(place);
                }
            }
        }
        let found = match &reader.cached {
            Some(cached) => Some(find(data, cached, &mut by_scan).await),
            None => None,
        };
        let mut late = HashMap::new();
        for (scan, places) in by_scan.iter().enumerate() {
            let read = &reader.reads[scan];
            let Some(staged) = stages(&windows, scan) else {
                if !read.projection.is_empty() {
                    fetched.insert(scan, fetch(context, scan, places).await?);
                }
                continue;
            };
            // Rows that were cached when the window was staged may have been evicted since.
            let mut known = None;
            let mut is_staged = |place: &RowLocation| {
                let same = known.replace(place.split) == Some(place.split);
                same || staged.iter().any(|s| s.has(place.split))
            };
            if !places.iter().all(&mut is_staged) {
                let mut wanted: Vec<u32> = places.iter().map(|p| p.split).collect();
                wanted.sort_unstable();
                wanted.dedup();
                late.insert(scan, stage_splits(context, scan, wanted).await?);
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

    /// Computes the segment's rows on the engine's pool. The result is a single batch, unless the rows do not fit
    /// into one.
    pub(crate) async fn compute(self, context: &SegmentContext) -> Result<Vec<RowBatch>> {
        let on_pool = context.clone();
        let computed = move || {
            let mut pieces = Vec::new();
            let leaves = self.leaves(&on_pool)?;
            compute_pieces(leaves, &on_pool, &mut pieces)?;
            Ok(pieces)
        };
        let mut rows = Vec::with_capacity(1);
        for (piece, fresh) in context.env.pool.run(computed).await? {
            if let (Some(cached), Some(fresh)) = (&context.reader.cached, fresh) {
                cached.store(fresh).await;
            }
            rows.push(piece);
        }
        Ok(rows)
    }

    /// Builds the inputs of the segment's fragments.
    fn leaves(self, context: &SegmentContext) -> Result<Leaves> {
        let SegmentContext { data, reader, .. } = context;
        let Self {
            windows,
            by_scan,
            mut fetched,
            late,
            found,
        } = self;
        let snapshot = &data.snapshot;
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

/// The inputs of a segment's fragments, by leaf, each sorted by position.
#[derive(Debug, Clone)]
struct Leaves {
    /// Inputs of the fragment.
    above: HashMap<Leaf, RowBatch>,
    /// Inputs of the cached prefix.
    below: HashMap<Leaf, RowBatch>,
    /// Rows below the cache point: those read from the cache, and those to be computed.
    found: Option<Found>,
}

impl Leaves {
    /// Takes out the first half of the rows; `None` if all rows have the same position, so that they cannot be divided.
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

    /// Computes the rows. Also returns the rows that are to be stored in the cache.
    fn compute(mut self, context: &SegmentContext) -> Result<(RowBatch, Option<Fresh>)> {
        let SegmentContext { data, reader, env } = context;
        let mut fresh = None;
        if let (Some(cached), Some(found)) = (&reader.cached, &self.found) {
            let computed = cached.fragment.run(self.below, &env.ctx)?;
            let (rows, new) = cached.join(&data.snapshot, found, computed)?;
            self.above.insert(Leaf::Cache, rows);
            fresh = new;
        }
        Ok((reader.fragment.run(self.above, &env.ctx)?, fresh))
    }
}

/// Takes the rows before `position` out of each leaf.
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

/// Computes the rows of a segment; the rows are halved repeatedly if they do not fit into one batch.
fn compute_pieces(
    mut leaves: Leaves,
    context: &SegmentContext,
    pieces: &mut Vec<(RowBatch, Option<Fresh>)>,
) -> Result<()> {
    match leaves.clone().compute(context) {
        Ok(piece) => pieces.push(piece),
        Err(error) if is_oversized(&error) => {
            let Some(first) = leaves.take_half()? else {
                return Err(error);
            };
            compute_pieces(first, context, pieces)?;
            compute_pieces(leaves, context, pieces)?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Finds the rows below the cache point that are cached, and leaves the others in `by_scan` to be computed.
async fn find(data: &StoredData, cached: &CachedPrefix, by_scan: &mut [Vec<RowLocation>]) -> Found {
    let mut wanted = Vec::new();
    for (scan, places) in by_scan.iter_mut().enumerate() {
        if cached.holds(scan) {
            wanted.append(places);
        }
    }
    wanted.sort_unstable_by_key(|place| place.position);
    let found = cached.find(&data.snapshot, wanted).await;
    for place in &found.missing {
        by_scan[data.snapshot.splits[place.split as usize].scan as usize].push(*place);
    }
    found
}

/// Reads rows of a source with direct access, one by one.
async fn fetch(context: &SegmentContext, scan: usize, places: &[RowLocation]) -> Result<Fetched> {
    let SegmentContext { data, reader, .. } = context;
    let source = &data.sources[scan];
    let ids = data.snapshot.row_ids(places);
    let files = ids
        .file
        .values()
        .iter()
        .map(|&f| data.snapshot.file_in_source(f));
    let rows: Vec<(u32, u64)> = files.zip(ids.row.values().iter().copied()).collect();
    let start = Instant::now();
    let projection = &reader.reads[scan].projection;
    let (batch, failed) = source.fetch(&rows, projection).await?;
    reader.note_reading(start.elapsed(), bytes_of(&batch));
    Ok((batch, failed))
}

/// Returns the stages of a scan; `None` if its rows are read from the source one by one.
fn stages(windows: &[Arc<Window>], scan: usize) -> Option<Vec<&Staged>> {
    let parts = windows.iter().map(|window| window.part(scan));
    let staged = parts.map(|part| match part {
        Part::Staged(staged) => Some(staged.as_ref()),
        Part::Direct => None,
    });
    staged.collect()
}

fn leaf(columns: Vec<ArrayRef>, snapshot: &Snapshot, places: &[RowLocation]) -> Result<RowBatch> {
    let rows = snapshot.row_ids(places).to_array()?;
    Ok(RowBatch {
        columns,
        rows,
        errors: Default::default(),
    })
}
