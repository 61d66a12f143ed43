//! Rows of segments as the client receives them.

use std::time::Duration;

use arrow::array::UInt64Array;
use arrow::datatypes::SchemaRef;
use datafusion::common::{Result as EngineResult, exec_datafusion_err};
use forebay_runtime::error::{Error, Result};
use forebay_runtime::fragment::row_batch::RowBatch;
use forebay_runtime::run::{CacheUse, JobWork, OpenJob, SegmentName};
use forebay_udfs::row::RowColumn;

use crate::engine::LeaseOutput;
use crate::joined_batches::{BatchSplitter, SplitBatch};
use crate::lease::{LeaseSummary, SegmentOutcome};
use crate::window::ByteSize;

/// The rows of a segment, or of a piece of a segment, or the error that the segment has instead.
#[derive(Debug)]
pub(crate) struct SegmentRows {
    pub(crate) rows: Result<Vec<RowBatch>>,
    /// Number of stored rows of the segment.
    pub(crate) stored: u64,
    bytes: u64,
}

/// The rows of a lease.
#[derive(Debug)]
pub(crate) struct LeaseRows {
    /// The rows of each segment, in the order of the lease.
    pub(crate) segments: Vec<SegmentRows>,
    /// Time that computing them took.
    pub(crate) took: Duration,
    /// The work that the worker did for the job so far, if it is measured.
    pub(crate) work: Option<JobWork>,
    /// Numbers of the lease's rows at the cache point; `None` without a cache.
    pub(crate) cache: Option<CacheUse>,
    /// The text that functions of the host language have printed.
    pub(crate) printed: String,
}

impl ByteSize for SegmentRows {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl SegmentRows {
    /// The error of a segment.
    pub(crate) const fn failed(error: Error) -> Self {
        Self {
            rows: Err(error),
            stored: 0,
            bytes: 0,
        }
    }

    fn of(job: &OpenJob, schema: &SchemaRef, name: &SegmentName, parts: Vec<SplitBatch>) -> Self {
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let batches: Vec<_> = parts.into_iter().map(|part| part.batch).collect();
        Self {
            rows: job.received(schema, name, &batches),
            stored: name.rows(),
            bytes,
        }
    }
}

/// Splits the output of a lease into the rows of its segments `names`, which have the columns of
/// `schema`.
///
/// # Errors
/// Fails if the worker sent something else than the rows of these segments.
pub(crate) fn rows_of(
    job: &OpenJob,
    schema: &SchemaRef,
    names: &[SegmentName],
    output: &LeaseOutput,
) -> EngineResult<LeaseRows> {
    let wrong = || exec_datafusion_err!("worker {} sent rows of another lease", output.worker.0);
    let summary = LeaseSummary::decode(&output.summary);
    let summary = summary.map_err(|e| exec_datafusion_err!("worker {}: {e}", output.worker.0))?;
    let (outcomes, nanos, work, cache, printed) = match summary {
        LeaseSummary::Segments {
            outcomes,
            nanos,
            work,
            cache,
            printed,
        } if outcomes.len() == names.len() => (outcomes, nanos, work, cache, printed),
        LeaseSummary::Refused(why) => return Err(exec_datafusion_err!("{why}")),
        _ => return Err(wrong()),
    };
    let mut batches = BatchSplitter::new(&output.batches);
    let mut rows = Vec::with_capacity(names.len());
    for (name, outcome) in names.iter().zip(outcomes) {
        rows.push(match outcome {
            SegmentOutcome::Computed { batches: sizes } => {
                // Batches without rows take memory of the client and none of the message. Each comes from a stored row or
                // more, or is the only one.
                let empty = sizes.iter().filter(|&&rows| rows == 0).count();
                if empty as u64 > name.rows().max(1) {
                    return Err(wrong());
                }
                let of_segment = sizes.into_iter().map(|rows| batches.take(rows as usize));
                let of_segment: Vec<_> = of_segment.collect::<Option<_>>().ok_or_else(wrong)?;
                SegmentRows::of(job, schema, name, of_segment)
            }
            SegmentOutcome::Failed(failure) => SegmentRows::failed(failure.into_error()),
        });
    }
    if !batches.is_empty() {
        return Err(wrong());
    }
    Ok(LeaseRows {
        segments: rows,
        took: Duration::from_nanos(nanos),
        work,
        cache,
        printed,
    })
}

/// Joins the rows of the pieces of a segment. If a piece failed, the segment fails.
pub(crate) fn joined(pieces: Vec<SegmentRows>) -> Result<Vec<RowBatch>> {
    let (mut all, mut before) = (Vec::new(), 0);
    for piece in pieces {
        for rows in piece.rows? {
            all.push(if before == 0 {
                rows
            } else {
                moved(rows, before)?
            });
        }
        before += piece.stored;
    }
    Ok(all)
}

/// Adds `by` to the positions of rows.
fn moved(rows: RowBatch, by: u64) -> EngineResult<RowBatch> {
    let ids = rows.row_ids()?;
    let positions = ids.position.values().iter().map(|at| at + by);
    let ids = RowColumn {
        position: UInt64Array::from_iter_values(positions),
        ..ids
    };
    Ok(RowBatch {
        rows: ids.to_array()?,
        ..rows
    })
}
