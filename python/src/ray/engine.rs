//! Leases on the actors of a Ray cluster.
//!
//! `python/forebay/ray_actors.py` starts the actors and passes leases to them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use forebay::forebay_cluster::engine::{
    BlobHash, EngineError, LeaseEngine, LeaseOutput, LeaseRequest, WorkerId,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::rows::decode;
use crate::runtime;

/// Carries leases to actors of Ray.
#[derive(Clone)]
pub(crate) struct RayEngine {
    /// The object of class `ray_actors.Actors`.
    actors: Arc<Py<PyAny>>,
}

impl RayEngine {
    pub(crate) fn new(actors: Py<PyAny>) -> Self {
        Self {
            actors: Arc::new(actors),
        }
    }

    /// Calls a method of the actors' object on a thread that may wait for the GIL.
    async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T> + Send + 'static,
    ) -> Result<T, EngineError> {
        let actors = Arc::clone(&self.actors);
        let called = runtime::blocking(move |py| call(actors.bind(py))).await;
        called.map_err(|error| EngineError::Unavailable {
            cause: format!("Ray: {error}"),
        })
    }

    async fn computed(self, lease: LeaseRequest) -> Result<LeaseOutput, EngineError> {
        let (sender, receiver) = oneshot::channel();
        let outcome = RayOutcome(Mutex::new(Some(sender)));
        let (runtime, of) = (Handle::current(), self.clone());
        // The lease is cancelled even if its number arrives after nobody waits for it any more.
        let submitted = self.call(move |actors| {
            let payload = PyBytes::new(actors.py(), &lease.payload);
            let avoid: Vec<String> = lease.avoid.into_iter().map(|worker| worker.0).collect();
            let staging = (lease.staging.time.as_secs_f64(), lease.staging.is_most);
            let arguments = (
                payload,
                lease.affinity,
                staging,
                lease.order,
                avoid,
                outcome,
            );
            Ok(Submitted {
                number: actors.call_method1("submit", arguments)?.extract()?,
                actors: of.actors,
                runtime,
                is_done: false,
            })
        });
        let mut submitted = submitted.await?;
        let outcome = receiver.await;
        submitted.is_done = true;
        let computed = outcome.map_err(|_| EngineError::Unavailable {
            cause: "Ray dropped the lease".to_owned(),
        })??;
        let malformed = |error: &dyn fmt::Display| EngineError::Refused {
            cause: format!(
                "the result of worker {} is malformed: {error}",
                computed.worker
            ),
        };
        let batches = decode(Bytes::from_owner(computed.rows));
        Ok(LeaseOutput {
            batches: batches.map_err(|error| malformed(&error))?,
            worker: WorkerId(computed.worker),
            summary: computed.summary.into(),
        })
    }
}

impl fmt::Debug for RayEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RayEngine")
    }
}

#[async_trait]
impl LeaseEngine for RayEngine {
    async fn put(&self, blob: Bytes) -> Result<BlobHash, EngineError> {
        let hash = BlobHash::of(&blob);
        self.call(move |actors| {
            let blob = PyBytes::new(actors.py(), &blob);
            actors
                .call_method1("put", (hash.to_string(), blob))
                .map(drop)
        })
        .await?;
        Ok(hash)
    }

    fn submit(&self, lease: LeaseRequest) -> BoxFuture<'static, Result<LeaseOutput, EngineError>> {
        self.clone().computed(lease).boxed()
    }

    async fn workers(&self) -> Result<Vec<WorkerId>, EngineError> {
        let workers = self.call(|actors| actors.call_method0("workers")?.extract());
        let workers: Vec<String> = workers.await?;
        Ok(workers.into_iter().map(WorkerId).collect())
    }
}

/// The result of a lease, as an actor returned it.
struct Computed {
    worker: String,
    summary: Vec<u8>,
    rows: PyBackedBytes,
}

/// Takes the outcome of one lease. The first call counts.
#[pyclass(frozen, module = "forebay._forebay")]
struct RayOutcome(Mutex<Option<oneshot::Sender<Result<Computed, EngineError>>>>);

#[pymethods]
impl RayOutcome {
    /// Takes the summary and the encoded rows that `worker` computed.
    fn computed(&self, worker: String, summary: Vec<u8>, rows: PyBackedBytes) {
        self.send(Ok(Computed {
            worker,
            summary,
            rows,
        }));
    }

    /// Notes that `worker` cannot compute the lease, and that others may.
    fn unfit(&self, worker: String, cause: String) {
        let worker = WorkerId(worker);
        self.send(Err(EngineError::WorkerUnfit { worker, cause }));
    }

    /// Notes that `worker` ended before its result was there.
    fn lost(&self, worker: String, cause: String) {
        let worker = Some(WorkerId(worker));
        self.send(Err(EngineError::WorkerLost { worker, cause }));
    }

    /// Notes that no worker can be had now.
    fn unavailable(&self, cause: String) {
        self.send(Err(EngineError::Unavailable { cause }));
    }

    /// Notes that no worker will ever be had.
    fn refused(&self, cause: String) {
        self.send(Err(EngineError::Refused { cause }));
    }
}

impl RayOutcome {
    fn send(&self, outcome: Result<Computed, EngineError>) {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = sender.take() {
            // Nobody waits for a lease that was cancelled.
            let _ = sender.send(outcome);
        }
    }
}

/// A lease that actors know. It is cancelled when this value is dropped before its outcome is there.
struct Submitted {
    number: u64,
    actors: Arc<Py<PyAny>>,
    runtime: Handle,
    is_done: bool,
}

impl Drop for Submitted {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let (number, actors) = (self.number, Arc::clone(&self.actors));
        // A future may be dropped by a thread that must not wait for the GIL.
        let cancelled = runtime::start(&self.runtime, move |py| {
            let cancelled = actors.call_method1(py, "cancel", (number,));
            cancelled.map(drop).inspect_err(|error| {
                log::debug!("a lease goes on although nobody waits for it: {error}");
            })
        });
        // Nobody can act on an error.
        drop(cancelled);
    }
}
