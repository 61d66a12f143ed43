//! The handler of requests on a worker: opens jobs, computes segments, counts rows, and answers
//! requests about sources and caches.

use std::sync::Arc;

use arrow::array::{ArrayRef, LargeBinaryArray, RecordBatch};
use bytes::Bytes;
use forebay_runtime::source::FileResolver;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::compute::compute;
use crate::engine::BlobHash;
use crate::failure::{SegmentFailure, unfit_cause};
use crate::handler::{
    BlobError, BlobSource, HandlerCounts, HandlerError, HandlerOutput, LeaseHandler,
};
use crate::jobs::{JobError, JobSettings, Jobs, WorkerJob};
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

impl JobHandler {
    /// Creates the handler of a worker without open jobs.
    pub fn new(settings: JobSettings) -> Self {
        let resolver = FileResolver::new(settings.objects.clone());
        let sources = Arc::new(Sources::new(settings.roots.clone(), resolver));
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
        match WorkerRequest::decode(payload) {
            Ok(WorkerRequest::Segments(lease)) => {
                let job = match self.job(lease.job(), blobs).await? {
                    Ok(job) => job,
                    Err(summary) => return without_rows(&summary),
                };
                if let Some(view) = lease.cache_view {
                    job.open.see_cache(view).await;
                }
                let (batches, summary) = compute(&job, lease.segments).await?;
                output(batches, &summary)
            }
            Ok(WorkerRequest::Count(request)) => {
                let job = match self.job(request.job(), blobs).await? {
                    Ok(job) => job,
                    Err(summary) => return without_rows(&summary),
                };
                match job.open.count(&request.share).await {
                    Ok(counts) => output(vec![single(counts.to_bytes())?], &LeaseSummary::Counted),
                    Err(error) if let Some(cause) = unfit_cause(&error) => {
                        Err(HandlerError::Unfit { cause })
                    }
                    Err(error) => without_rows(&LeaseSummary::Failed(SegmentFailure::of(&error))),
                }
            }
            Ok(WorkerRequest::Source(request)) => {
                let answered = source_handler::answer(&self.sources, request).await;
                let (batches, summary) = answered.map_err(|cause| HandlerError::Unfit { cause })?;
                output(batches, &summary)
            }
            Ok(WorkerRequest::Cache(request)) => without_rows(&self.jobs.answer(&request).await),
            Ok(WorkerRequest::Publish(request)) => {
                // A job that is not open has no rows in memory.
                if let Some(job) = self.jobs.opened(request.job()) {
                    job.open.publish().await;
                }
                without_rows(&LeaseSummary::Published)
            }
            Err(error) => without_rows(&LeaseSummary::Refused(error.to_string())),
        }
    }

    /// Returns the job that the blob `hash` describes, or the summary of a request that has no
    /// result because of its job.
    async fn job(
        &self,
        hash: BlobHash,
        blobs: &dyn BlobSource,
    ) -> Result<Result<Arc<WorkerJob>, LeaseSummary>, HandlerError> {
        let unfit = |cause: String| Err(HandlerError::Unfit { cause });
        match self.jobs.get(hash, blobs).await {
            Ok(job) => Ok(Ok(job)),
            Err(JobError::Blob(BlobError::Missing(_))) => Ok(Err(LeaseSummary::MissingJob)),
            Err(JobError::Refused(why)) => Ok(Err(LeaseSummary::Refused(why))),
            Err(JobError::Unfit(cause)) => unfit(cause),
            Err(JobError::Blob(error)) => unfit(error.to_string()),
        }
    }
}

/// Returns a batch whose only value is `bytes`.
fn single(bytes: Vec<u8>) -> Result<RecordBatch, HandlerError> {
    let column: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values([bytes]));
    let batch = RecordBatch::try_from_iter([("counts", column)]);
    batch.map_err(|error| HandlerError::Unfit {
        cause: error.to_string(),
    })
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

    fn events(&self) -> Vec<String> {
        self.jobs.events()
    }

    fn counts(&self) -> HandlerCounts {
        self.jobs.counts()
    }
}
