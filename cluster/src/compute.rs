//! Computation of leases by a worker that has opened their job.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use forebay_runtime::error::Error;
use forebay_runtime::run::{CacheUse, OpenJob, SegmentName};
use futures::{StreamExt, stream};
use tokio::sync::Mutex;

use crate::failure::unfit_cause;
use crate::handler::HandlerError;
use crate::jobs::WorkerJob;
use crate::joined_batches::BatchJoiner;
use crate::lease::{LeaseSummary, SegmentOutcome};

/// Number of segments of a lease that are read and computed concurrently.
const SEGMENTS_AT_ONCE: usize = 4;
/// Held by the lease whose operators are measured.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Computes `segments` of `job` in order, and returns their rows with a summary. Segments after one
/// that fails are computed, too, because the run may not need the one that fails.
///
/// # Errors
/// Fails if a segment cannot be computed on this machine, and may be on another.
pub(crate) async fn compute(
    worker_job: &WorkerJob,
    segments: Vec<SegmentName>,
) -> Result<(Vec<RecordBatch>, LeaseSummary), HandlerError> {
    let job: &Arc<OpenJob> = &worker_job.open;
    // The CPU time of an operator is that of the whole process while the operator runs.
    let _alone = if job.analyze {
        Some(ALONE.lock().await)
    } else {
        None
    };
    let at_once = if job.analyze { 1 } else { SEGMENTS_AT_ONCE };
    let started = Instant::now();
    let mut computed = stream::iter(segments)
        .map(|name| {
            let job = Arc::clone(job);
            async move {
                let computed = job.compute(&name).await?;
                Ok((job.to_batches(&computed.rows)?, computed.cache))
            }
        })
        .buffered(at_once);
    let (mut joiner, mut outcomes) = (BatchJoiner::default(), Vec::new());
    let mut cache: Option<CacheUse> = None;
    while let Some(segment) = computed.next().await {
        let segment: Result<(Vec<RecordBatch>, Option<CacheUse>), Error> = segment;
        if let Some(cause) = segment.as_ref().err().and_then(unfit_cause) {
            return Err(HandlerError::Unfit { cause });
        }
        outcomes.push(SegmentOutcome::of(segment.as_ref().map(|(of, _)| &of[..])));
        let Ok((of_segment, rows)) = segment else {
            continue;
        };
        of_segment.into_iter().for_each(|batch| joiner.add(batch));
        if let Some(rows) = rows {
            *cache.get_or_insert_default() += rows;
        }
    }
    let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let work = job.analyze.then(|| job.work());
    let printed = worker_job.functions.iter();
    let summary = LeaseSummary::Segments {
        outcomes,
        nanos,
        work,
        cache,
        printed: printed.map(|function| function.take_printed()).collect(),
    };
    Ok((joiner.finish(), summary))
}
