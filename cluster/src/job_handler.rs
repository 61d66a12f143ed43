//! The handler of requests on a worker: opens the job of a lease and computes its segments, or
//! answers a request about a source.

use std::sync::Arc;

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::compute::compute;
use crate::handler::{BlobError, BlobSource, HandlerError, HandlerOutput, LeaseHandler};
use crate::jobs::{JobError, JobSettings, Jobs};
use crate::lease::LeaseSummary;
use crate::request::WorkerRequest;
use crate::source_handler;
use crate::sources::Sources;

/// Computes the leases of pipelines, as a [`LeaseHandler`].
#[derive(Debug, Clone)]
pub struct JobHandler {
    jobs: Arc<Jobs>,
    sources: Arc<Sources>,
}

/// The reason why a lease has no rows.
#[derive(Debug)]
enum NoRows {
    Job(JobError),
    Blob(BlobError),
}

impl From<JobError> for NoRows {
    fn from(error: JobError) -> Self {
        Self::Job(error)
    }
}

impl JobHandler {
    /// Creates the handler of a worker without open jobs.
    pub fn new(settings: JobSettings) -> Self {
        let sources = Arc::new(Sources::new(settings.roots.clone()));
        Self {
            jobs: Arc::new(Jobs::new(settings, Arc::clone(&sources))),
            sources,
        }
    }

    async fn computed(
        &self,
        payload: &[u8],
        blobs: &dyn BlobSource,
    ) -> Result<HandlerOutput, HandlerError> {
        let lease = match WorkerRequest::decode(payload) {
            Ok(WorkerRequest::Segments(lease)) => lease,
            Ok(WorkerRequest::Source(request)) => {
                let answered = source_handler::answer(&self.sources, request).await;
                let (batches, summary) = answered.map_err(|cause| HandlerError::Unfit { cause })?;
                return output(batches, &summary);
            }
            Err(error) => return without_rows(&LeaseSummary::Refused(error.to_string())),
        };
        let hash = lease.job();
        let read = async || blobs.get(hash).await.map_err(NoRows::Blob);
        let job = match self.jobs.get(hash, read).await {
            Ok(job) => job,
            Err(NoRows::Blob(BlobError::Missing(_))) => {
                return without_rows(&LeaseSummary::MissingJob);
            }
            Err(NoRows::Job(JobError::Refused(why))) => {
                return without_rows(&LeaseSummary::Refused(why));
            }
            Err(NoRows::Job(JobError::Unfit(cause))) => return Err(HandlerError::Unfit { cause }),
            Err(NoRows::Blob(error)) => {
                let cause = error.to_string();
                return Err(HandlerError::Unfit { cause });
            }
        };
        let (batches, summary) = compute(&job, lease.segments).await;
        output(batches, &summary)
    }
}

fn without_rows(summary: &LeaseSummary) -> Result<HandlerOutput, HandlerError> {
    output(Vec::new(), summary)
}

fn output(
    batches: Vec<RecordBatch>,
    summary: &LeaseSummary,
) -> Result<HandlerOutput, HandlerError> {
    let summary = summary.encode().map_err(|error| HandlerError::Unfit {
        cause: error.to_string(),
    })?;
    Ok(HandlerOutput {
        batches,
        summary: summary.into(),
    })
}

impl LeaseHandler for JobHandler {
    fn compute(
        &self,
        payload: Bytes,
        blobs: Arc<dyn BlobSource>,
    ) -> BoxFuture<'static, Result<HandlerOutput, HandlerError>> {
        let handler = self.clone();
        async move { handler.computed(&payload, &*blobs).await }.boxed()
    }
}
