//! A lease engine whose workers are in this process, for tests and for programs that embed several
//! workers.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::engine::{BlobHash, EngineError, LeaseEngine, LeaseOutput, LeaseRequest, WorkerId};
use crate::handler::{BlobError, BlobSource, HandlerError, LeaseHandler};

/// A lease engine that computes leases in tasks of this process.
#[derive(Clone)]
pub struct InProcessEngine {
    workers: Arc<[(WorkerId, Arc<dyn LeaseHandler>)]>,
    blobs: Arc<InProcessBlobs>,
}

/// The blobs of an [`InProcessEngine`].
#[derive(Debug, Default)]
struct InProcessBlobs(Mutex<HashMap<BlobHash, Bytes>>);

impl InProcessEngine {
    /// Creates an engine with a worker for each of `handlers`.
    pub fn new(handlers: impl IntoIterator<Item = Arc<dyn LeaseHandler>>) -> Self {
        let named = handlers.into_iter().enumerate();
        Self {
            workers: named
                .map(|(index, handler)| (WorkerId(format!("in-process-{index}")), handler))
                .collect(),
            blobs: Arc::default(),
        }
    }

    /// Forgets all blobs, as a scheduler does that is restarted.
    pub fn forget_blobs(&self) {
        let mut blobs = self.blobs.0.lock().unwrap_or_else(PoisonError::into_inner);
        blobs.clear();
    }

    /// Returns the worker that computes a lease: the one that the affinity key selects among those
    /// that the lease does not avoid.
    fn worker(&self, lease: &LeaseRequest) -> Option<(WorkerId, Arc<dyn LeaseHandler>)> {
        let fit = self
            .workers
            .iter()
            .filter(|(id, _)| !lease.avoid.contains(id));
        let fit: Vec<_> = fit.collect();
        let nth = usize::try_from(lease.affinity % (fit.len().max(1) as u64)).unwrap_or(0);
        fit.get(nth)
            .map(|(id, handler)| (id.clone(), Arc::clone(handler)))
    }
}

impl fmt::Debug for InProcessEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InProcessEngine({} workers)", self.workers.len())
    }
}

impl BlobSource for InProcessBlobs {
    fn get(&self, hash: BlobHash) -> BoxFuture<'static, Result<Bytes, BlobError>> {
        let blobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = blobs.get(&hash).cloned().ok_or(BlobError::Missing(hash));
        async move { found }.boxed()
    }
}

#[async_trait]
impl LeaseEngine for InProcessEngine {
    async fn put(&self, blob: Bytes) -> Result<BlobHash, EngineError> {
        let hash = BlobHash::of(&blob);
        let mut blobs = self.blobs.0.lock().unwrap_or_else(PoisonError::into_inner);
        blobs.insert(hash, blob);
        Ok(hash)
    }

    fn submit(&self, lease: LeaseRequest) -> BoxFuture<'static, Result<LeaseOutput, EngineError>> {
        let Some((worker, handler)) = self.worker(&lease) else {
            let cause = "no worker is left".to_owned();
            return async move { Err(EngineError::Unavailable { cause }) }.boxed();
        };
        let blobs: Arc<dyn BlobSource> = Arc::clone(&self.blobs) as _;
        async move {
            match handler.compute(lease.payload, blobs).await {
                Ok(output) => Ok(LeaseOutput {
                    worker,
                    batches: output.batches,
                    summary: output.summary,
                }),
                Err(HandlerError::Unfit { cause }) => {
                    Err(EngineError::WorkerUnfit { worker, cause })
                }
            }
        }
        .boxed()
    }

    async fn workers(&self) -> Result<Vec<WorkerId>, EngineError> {
        Ok(self.workers.iter().map(|(id, _)| id.clone()).collect())
    }
}
