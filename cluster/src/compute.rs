//! Computation of leases by a worker that has opened their job.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use forebay_runtime::error::Error;
use forebay_runtime::run::{CacheUse, OpenJob, SegmentName};
use futures::{StreamExt, stream};
use tokio::sync::Mutex;

use crate::lease::{LeaseSummary, SegmentOutcome};

/// Number of segments of a lease that are read and computed concurrently.
const SEGMENTS_AT_ONCE: usize = 4;
/// Held by the lease whose operators are measured.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Computes `segments` of `job` in order, and returns their rows with a summary. Segments after one
/// that fails are computed, too, because the run may not need the one that fails.
pub(crate) async fn compute(
    job: &Arc<OpenJob>,
    segments: Vec<SegmentName>,
) -> (Vec<RecordBatch>, LeaseSummary) {
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
    let (mut batches, mut outcomes) = (Vec::new(), Vec::new());
    let mut cache: Option<CacheUse> = None;
    while let Some(segment) = computed.next().await {
        let segment: Result<(Vec<RecordBatch>, Option<CacheUse>), Error> = segment;
        outcomes.push(SegmentOutcome::of(segment.as_ref().map(|(of, _)| of.len())));
        let Ok((of_segment, rows)) = segment else {
            continue;
        };
        batches.extend(of_segment);
        if let Some(rows) = rows {
            *cache.get_or_insert_default() += rows;
        }
    }
    let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let work = job.analyze.then(|| job.work());
    let summary = LeaseSummary::Segments {
        outcomes,
        nanos,
        work,
        cache,
    };
    (batches, summary)
}
