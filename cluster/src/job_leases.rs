//! Leases of one job, whose description workers may lack.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::engine::{
    BlobHash, EngineError, LeaseEngine, LeaseOutput, LeaseRequest, StreamReport, WorkerId,
};
use crate::lease::LeaseSummary;

/// Number of times that a lease is submitted again because the cluster does not store the
/// description of its job any more.
const UPLOADS: usize = 3;

/// Leases of one job. Stores the description of the job in the cluster when a worker misses it.
#[derive(Clone)]
pub(crate) struct JobLeases {
    pub(crate) inner: Arc<dyn LeaseEngine>,
    pub(crate) job: BlobHash,
    /// The description of the job, which `job` is the hash of.
    pub(crate) spec: Bytes,
    /// The functions of the job, if it calls any.
    pub(crate) functions: Option<Bytes>,
}

impl fmt::Debug for JobLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobLeases({:?})", self.job)
    }
}

impl JobLeases {
    async fn computed(&self, lease: LeaseRequest) -> Result<LeaseOutput, EngineError> {
        for _ in 0..UPLOADS {
            let output = self.inner.submit(lease.clone()).await?;
            match LeaseSummary::decode(&output.summary) {
                Ok(LeaseSummary::MissingJob) => self.store().await?,
                Ok(LeaseSummary::Refused(cause)) => return Err(EngineError::Refused { cause }),
                _ => return Ok(output),
            }
        }
        Err(EngineError::Unavailable {
            cause: "the cluster does not keep the description of the job".to_owned(),
        })
    }

    async fn store(&self) -> Result<(), EngineError> {
        for blob in self.functions.iter().chain([&self.spec]) {
            self.inner.put(blob.clone()).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl LeaseEngine for JobLeases {
    async fn put(&self, blob: Bytes) -> Result<BlobHash, EngineError> {
        self.inner.put(blob).await
    }

    fn submit(&self, lease: LeaseRequest) -> BoxFuture<'static, Result<LeaseOutput, EngineError>> {
        let leases = self.clone();
        async move { leases.computed(lease).await }.boxed()
    }

    async fn workers(&self) -> Result<Vec<WorkerId>, EngineError> {
        self.inner.workers().await
    }

    fn report(&self, mut report: StreamReport) {
        report.job = Some(self.job);
        self.inner.report(report);
    }
}
