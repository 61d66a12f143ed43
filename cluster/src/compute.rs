//! Computation of leases by a worker that has opened their job.

use std::sync::Arc;

use arrow::array::RecordBatch;
use forebay_runtime::error::Error;
use forebay_runtime::run::{OpenJob, SegmentName};
use futures::{StreamExt, stream};

use crate::lease::LeaseSummary;

/// Number of segments of a lease that are read and computed concurrently.
const SEGMENTS_AT_ONCE: usize = 4;

/// Computes `segments` of `job` in order, and returns their rows with a summary. Stops after the
/// first segment that fails, because the client cannot use what follows it.
pub async fn compute(
    job: &Arc<OpenJob>,
    segments: Vec<SegmentName>,
) -> (Vec<RecordBatch>, LeaseSummary) {
    let mut computed = stream::iter(segments)
        .map(|name| {
            let job = Arc::clone(job);
            async move { job.to_batches(&job.compute(&name).await?) }
        })
        .buffered(SEGMENTS_AT_ONCE);
    let (mut batches, mut summary) = (Vec::new(), LeaseSummary::default());
    while let Some(segment) = computed.next().await {
        let segment: Result<Vec<RecordBatch>, Error> = segment;
        summary.push(segment.as_ref().map(Vec::len));
        match segment {
            Ok(rows) => batches.extend(rows),
            Err(_) => break,
        }
    }
    (batches, summary)
}
