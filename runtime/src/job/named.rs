//! Segments by name: finds the rows of a named segment in an opened job, and computes them.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use datafusion::common::{Result as EngineResult, exec_err};

use super::{CountShare, OpenJob, ShareName};
use crate::error::Result;
use crate::fragment::row_batch::RowBatch;
use crate::fragment::width::RowWidth;
use crate::segment::{CacheUse, OrderedSegment, OrderedWindow, RowRun, SegmentName, SegmentWindow};
use crate::tail::uri;

/// Maximum number of stored rows in a named segment. Segments of a run have about 16,384 rows, and
/// larger ones only if a batch has.
const MAX_ROWS: u64 = 1 << 26;

/// A segment that was computed from its name.
#[derive(Debug)]
pub struct ComputedSegment {
    /// The rows, in a single batch, or in several if they do not fit into one.
    pub rows: Vec<RowBatch>,
    /// Numbers of rows at the cache point; `None` without a cache.
    pub cache: Option<CacheUse>,
}

impl OpenJob {
    /// Computes a segment.
    ///
    /// # Errors
    /// Fails if `name` does not name a segment of this job, and if the segment cannot be read or
    /// computed. Rows that fail are part of the batches.
    pub async fn compute(&self, name: &SegmentName) -> Result<ComputedSegment> {
        let segment = self.find(name).await?;
        let read = segment.request().read(&self.segments).await?;
        let cache = read.cache_use();
        let rows = read.compute(&self.segments).await?;
        Ok(ComputedSegment { rows, cache })
    }

    /// Counts a share of the stored rows.
    ///
    /// # Errors
    /// Fails if `share` does not name a share of this job, which is untrusted input, or if a file
    /// cannot be read.
    pub async fn count(&self, share: &ShareName) -> Result<CountShare> {
        Ok(self.counter.named(share).await?)
    }

    /// Estimates the size of a segment's rows in bytes, and the CPU time that computing them takes.
    pub fn estimate(&self, name: &SegmentName) -> (u64, Duration) {
        let rows = name.rows();
        let stored = self.plan.data.snapshot.row_bytes();
        let row = RowWidth::of(self.plan.reader.fragment.schema()).estimate(stored);
        let picos = self.row_cost.unwrap_or(0).saturating_mul(u128::from(rows));
        let nanos = u64::try_from(picos / 1000).unwrap_or(u64::MAX);
        (row.saturating_mul(rows), Duration::from_nanos(nanos))
    }

    /// Describes the rows of a segment for an error: `row 3 of 'photos/0.jpg'`. Returns `None` if
    /// `name` does not name a segment of this job.
    pub async fn describe(&self, name: &SegmentName) -> Option<String> {
        let places = self.find(name).await.ok()?.places();
        let snapshot = &self.plan.data.snapshot;
        let (file, row) = snapshot.number_in_file(places.first()?.row);
        let file = uri(snapshot.location(file), snapshot.path(file));
        let first = format!("row {row} of '{file}'");
        Some(match places.len() {
            1 => first,
            rows => format!("{rows} rows, the first of which is {first}"),
        })
    }

    /// Finds the windows and rows of a segment. A name is untrusted input.
    async fn find(&self, name: &SegmentName) -> EngineResult<OrderedSegment> {
        let rows = name.rows();
        if rows > MAX_ROWS {
            return exec_err!("a segment has {rows} rows, more than the limit of {MAX_ROWS}");
        }
        if name
            .wanted
            .as_ref()
            .is_some_and(|wanted| wanted.len() as u64 != rows)
        {
            return exec_err!("a segment of {rows} rows has another number of row ranges");
        }
        let is_reversed = |of: &Range<u32>| of.start > of.end;
        if { name.wanted.iter().flatten() }.any(is_reversed) {
            return exec_err!("a segment has a range of rows that ends before it begins");
        }
        let mut windows = Vec::with_capacity(name.windows.len());
        for &window in &name.windows {
            let is_ordered = |run: &RowRun| {
                let of = name.windows.get(run.extent().0 as usize);
                matches!(run, RowRun::Ordered { .. }) && of == Some(&window)
            };
            windows.push(if name.runs.iter().any(is_ordered) {
                self.ordered(window).await?
            } else {
                Arc::new(self.unordered(window)?)
            });
        }
        for run in &name.runs {
            self.check(run, &windows)?;
        }
        Ok(OrderedSegment {
            windows,
            runs: name.runs.clone(),
            wanted: name.wanted.clone(),
            by_child: name.by_child,
            planned: name
                .planned
                .map(|rows| usize::try_from(rows).unwrap_or(usize::MAX)),
        })
    }

    /// Returns a window with its rows in order.
    async fn ordered(&self, name: SegmentWindow) -> EngineResult<Arc<OrderedWindow>> {
        let order = async || {
            let window = self.unordered(name)?;
            let ordered = window.in_order(self.clauses.shuffle, false);
            Ok(Arc::new(ordered.await?))
        };
        let cell = self.orders.get(name);
        cell.get_or_try_init(order).await.map(Arc::clone)
    }

    fn unordered(&self, name: SegmentWindow) -> EngineResult<OrderedWindow> {
        match name {
            SegmentWindow::OfPass {
                input,
                epoch,
                pass,
                index,
            } => {
                let (input, pass) = (input as usize, (epoch, pass));
                if input >= self.passes.inputs() {
                    return exec_err!(
                        "a segment names input {input}, which the pipeline does not have"
                    );
                }
                let windows = self.passes.windows(input, pass);
                let Some(splits) = windows.get(index as usize) else {
                    return exec_err!(
                        "a segment names window {index}, which the data does not have"
                    );
                };
                Ok(self.window(input, pass, (index, splits)))
            }
            SegmentWindow::Split { split, key } => {
                if split as usize >= self.splits() {
                    return exec_err!(
                        "a segment names split {split}, which the data does not have"
                    );
                }
                Ok(self.split(split, key))
            }
        }
    }

    /// Checks that the rows of `run` exist and lie in their window.
    fn check(&self, run: &RowRun, windows: &[Arc<OrderedWindow>]) -> EngineResult<()> {
        let Some(window) = windows.get(run.extent().0 as usize) else {
            return exec_err!("a row of a segment has no window");
        };
        let exists = match *run {
            RowRun::Ordered { start, rows, .. } => {
                u64::from(start) + u64::from(rows) <= window.rows.len() as u64
            }
            RowRun::Stored { split, offset, .. } => {
                let splits = &self.plan.data.snapshot.splits;
                let of = splits.get(split as usize);
                of.is_some_and(|of| u64::from(offset) < of.rows) && window.window.has(split)
            }
        };
        if exists {
            Ok(())
        } else {
            exec_err!("a segment names a row that its window does not have")
        }
    }
}
