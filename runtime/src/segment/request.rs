//! Segment requests: the rows that a segment reads and computes.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::UInt64Array;
use datafusion::common::{Result, exec_datafusion_err};

use super::compute::Segment;
use super::context::SegmentContext;
use super::lazy_window::LazyWindow;
use crate::fragment::row_batch::RowBatch;
use crate::order::RowLocation;

/// A request for a segment's rows.
#[derive(Debug)]
pub(crate) struct SegmentRequest {
    /// The windows that the rows belong to.
    pub(crate) windows: Vec<Arc<LazyWindow>>,
    /// The stored rows, sorted by position.
    pub(crate) places: Vec<RowLocation>,
    /// For each place, the range of its output rows to keep; `None` to keep all.
    pub(crate) wanted: Option<Vec<Range<u32>>>,
    /// True if `wanted` counts the children of `unnest`, including those that a filter above it
    /// drops.
    pub(crate) by_child: bool,
    /// Number of rows that the segment must have; `None` if unknown.
    pub(crate) planned: Option<usize>,
}

/// A segment whose stored rows were read, to be computed.
#[derive(Debug)]
pub(crate) struct ReadSegment {
    /// `None` if the request has no rows.
    segment: Option<Segment>,
    /// Ranges of output rows to keep, with the positions of their stored rows.
    wanted: Option<Vec<(u64, Range<u32>)>>,
    by_child: bool,
    planned: Option<usize>,
}

impl SegmentRequest {
    /// Reads the segment's stored rows.
    pub(crate) async fn read(self, context: &SegmentContext) -> Result<ReadSegment> {
        let mut windows = Vec::with_capacity(self.windows.len());
        for window in &self.windows {
            windows.push(window.get().await?);
        }
        let positions = self.places.iter().map(|place| place.position);
        let wanted = self.wanted.map(|wanted| positions.zip(wanted).collect());
        let segment = if self.places.is_empty() {
            None
        } else {
            Some(Segment::read(context, windows, self.places).await?)
        };
        Ok(ReadSegment {
            segment,
            wanted,
            by_child: self.by_child,
            planned: self.planned,
        })
    }
}

impl ReadSegment {
    /// Computes the segment's rows, in order, in one batch or several.
    ///
    /// # Errors
    /// Fails if there are fewer or more rows than planned, because the data changed since they were counted.
    pub(crate) async fn compute(self, context: &SegmentContext) -> Result<Vec<RowBatch>> {
        let planned = self.planned;
        let pieces = self.computed(context).await?;
        let rows: usize = pieces.iter().map(RowBatch::len).sum();
        match planned {
            Some(planned) if planned != rows => Err(exec_datafusion_err!(
                "{planned} rows were counted but {rows} were computed: a file was changed since it was counted, or a \
                 function that is declared deterministic is not; run again, and remove the folder \
                 <cache_dir>.counts if there is one"
            )),
            _ => Ok(pieces),
        }
    }

    async fn computed(self, context: &SegmentContext) -> Result<Vec<RowBatch>> {
        let Some(segment) = self.segment else {
            return Ok(vec![RowBatch::empty(context.reader.fragment.schema())]);
        };
        let pieces = segment.compute(context).await?;
        let Some(wanted) = self.wanted else {
            return Ok(pieces);
        };
        let pieces = pieces.into_iter();
        pieces
            .map(|piece| only_wanted(piece, &wanted, self.by_child))
            .collect()
    }
}

/// Keeps the wanted output rows of each stored row. Its other output rows may belong to batches of
/// other ranks.
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
