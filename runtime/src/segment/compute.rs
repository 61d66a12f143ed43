//! Computes segments: turns the stored rows that were read into the output rows of a fragment.
//!
//! Reading is asynchronous. Computing happens on the engine's rayon pool, never on a thread that
//! serves I/O. The output of a segment depends only on the segment's stored rows and their
//! positions.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt64Array};
use datafusion::common::{Result, exec_datafusion_err};

use super::cached_prefix::{CacheUse, Found};
use super::context::SegmentContext;
use super::prefix_writer::Fresh;
use super::window::{Staged, Window, gather, stages};
use crate::fragment::concat::is_oversized;
use crate::fragment::row_batch::{RowBatch, RowErrors, SlotError};
use crate::fragment::scan::Leaf;
use crate::order::RowLocation;
use crate::source::ValueError;

/// A segment whose stored rows were read, but whose output rows were not computed yet.
#[derive(Debug)]
pub(crate) struct ReadSegment {
    /// The windows that contain the segment's rows; empty if the segment has no rows.
    pub(super) windows: Vec<Arc<Window>>,
    /// The stored rows of each scan, except rows that were found in the cache.
    pub(super) by_scan: Vec<ScanRows>,
    /// True if it is known that pruning removed none of the stored rows.
    pub(super) are_kept: bool,
    /// Rows of the cached prefix: rows read from the cache, and locations of the rows to be
    /// computed.
    pub(super) found: Option<Found>,
    /// For each stored row, the row's position and the range of its output rows to keep; `None` to
    /// keep all output rows.
    pub(super) wanted: Option<Vec<(u64, Range<u32>)>>,
    pub(super) by_child: bool,
    pub(super) planned: Option<usize>,
}

/// The rows of a segment that belong to one scan.
#[derive(Debug)]
pub(super) struct ScanRows {
    pub(super) places: Vec<RowLocation>,
    pub(super) values: Values,
}

/// The values of a scan's rows, or the place from which they are read when the segment is computed.
#[derive(Debug)]
pub(super) enum Values {
    /// The fragment reads no column of the scan.
    NotRead,
    /// The rows were read one by one from a source with direct access. Values that could not be
    /// read are errors.
    Fetched(RecordBatch, Vec<ValueError>),
    /// The windows of the segment hold the rows.
    Staged,
    /// The splits were not staged with their window, because all their rows were cached. They were
    /// staged for this segment, because some of the rows were evicted from the cache since.
    StagedLate(Box<Staged>),
}

impl ReadSegment {
    /// Returns the numbers of the segment's rows at the cache point; `None` without a cache.
    pub(crate) fn cache_use(&self) -> Option<CacheUse> {
        self.found.as_ref().map(Found::counts)
    }

    /// Computes the segment's rows on the engine's pool. Returns a single batch, or several if the
    /// rows do not fit into one.
    ///
    /// # Errors
    /// Fails if the number of computed rows is not `planned`, the number of rows that was counted
    /// before: a file was changed since, or a function that is declared deterministic is not.
    pub(crate) async fn compute(mut self, context: &SegmentContext) -> Result<Vec<RowBatch>> {
        let (wanted, by_child, planned) = (self.wanted.take(), self.by_child, self.planned);
        let mut rows = Vec::with_capacity(1);
        if self.by_scan.is_empty() {
            rows.push(RowBatch::empty(context.reader.fragment.schema()));
        } else {
            let on_pool = context.clone();
            let computed = move || {
                let mut pieces = Vec::new();
                compute_pieces(self.leaves(&on_pool)?, &on_pool, &mut pieces)?;
                Ok(pieces)
            };
            for (piece, fresh) in context.env.pool.run(computed).await? {
                if let (Some(cached), Some(fresh)) = (&context.reader.cached, fresh) {
                    cached.store(fresh).await;
                }
                rows.push(match &wanted {
                    Some(wanted) => only_wanted(piece, wanted, by_child)?,
                    None => piece,
                });
            }
        }
        let computed: usize = rows.iter().map(RowBatch::len).sum();
        match planned {
            Some(planned) if planned != computed => Err(exec_datafusion_err!(
                "{planned} rows were counted but {computed} were computed: a file was changed since it was counted, \
                 or a function that is declared deterministic is not; run again, and remove the folder \
                 <cache_dir>.counts if there is one"
            )),
            _ => Ok(rows),
        }
    }

    /// Builds the rows of each leaf of the fragment and of the cached prefix.
    fn leaves(self, context: &SegmentContext) -> Result<Leaves> {
        let SegmentContext { data, reader, .. } = context;
        let (mut above, mut below) = (HashMap::new(), HashMap::new());
        for (scan, rows) in self.by_scan.into_iter().enumerate() {
            let cached = reader.cached_below(scan);
            let mut places = rows.places;
            for place in &mut places {
                place.pass = cached.map_or(place.pass, |cached| cached.pass(place.pass));
            }
            let mut errors = RowErrors::new();
            let (columns, places) = match rows.values {
                Values::NotRead => (Vec::new(), places),
                Values::Fetched(batch, failed) => {
                    for error in failed {
                        errors.entry(error.row).or_default().push(SlotError {
                            column: Some(error.column),
                            operator: "read".to_owned(),
                            cause: error.cause,
                        });
                    }
                    (batch.columns().to_vec(), places)
                }
                Values::Staged => {
                    let staged = stages(&self.windows, scan).unwrap_or_default();
                    gather(&staged, places, self.are_kept)?
                }
                // The order of the rows was made before these splits were staged.
                Values::StagedLate(staged) => gather(&[&*staged], places, false)?,
            };
            let leaf = RowBatch {
                columns,
                rows: data.snapshot.row_ids(&places).to_array()?,
                errors,
            };
            let leaves = match cached {
                Some(_) => &mut below,
                None => &mut above,
            };
            leaves.insert(Leaf::Scan(data.snapshot.scans[scan].occurrence), leaf);
        }
        Ok(Leaves {
            above,
            below,
            found: self.found,
        })
    }
}

/// The rows of a segment for each leaf of the fragment and of the cached prefix, sorted by
/// position.
#[derive(Debug, Clone)]
struct Leaves {
    /// Input rows of the operators above the cached prefix, by leaf.
    above: HashMap<Leaf, RowBatch>,
    /// Rows of the leaves of the cached prefix.
    below: HashMap<Leaf, RowBatch>,
    /// Rows of the cached prefix: rows read from the cache, and locations of the rows to be
    /// computed.
    found: Option<Found>,
}

impl Leaves {
    /// Removes and returns the first half of the rows; `None` if all rows have the same position,
    /// because such rows cannot be divided.
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

    /// Computes the output rows of the fragment. Also returns the rows that are to be stored in the
    /// cache.
    fn compute(mut self, context: &SegmentContext) -> Result<(RowBatch, Option<Fresh>)> {
        let SegmentContext {
            data, reader, env, ..
        } = context;
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

/// Removes the rows with positions below `position` from each leaf, and returns the removed rows.
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

/// Computes the output rows of `leaves`, and appends them to `pieces`. Rows whose results do not
/// fit into one batch are divided in halves, repeatedly if necessary.
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

/// Keeps the output rows that `wanted` lists for their stored row. Other output rows of the same
/// stored row may belong to batches of other ranks.
fn only_wanted(rows: RowBatch, wanted: &[(u64, Range<u32>)], by_child: bool) -> Result<RowBatch> {
    let ids = rows.row_ids()?;
    let (mut kept, mut before, mut nth) = (Vec::with_capacity(rows.len()), None, 0);
    for (row, &position) in ids.position.values().iter().enumerate() {
        nth = if before == Some(position) { nth + 1 } else { 0 };
        before = Some(position);
        let nth = if by_child { ids.child.value(row) } else { nth };
        let at = wanted.binary_search_by_key(&position, |(at, _)| *at);
        if at.is_ok_and(|at| wanted[at].1.contains(&nth)) {
            kept.push(row as u64);
        }
    }
    if kept.len() == rows.len() {
        Ok(rows)
    } else {
        rows.take(&UInt64Array::from(kept))
    }
}
