//! The worker of a cluster in an actor of Ray.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::buffer::Buffer;
use forebay::forebay_cluster::engine::BlobHash;
use forebay::forebay_cluster::handler::{BlobError, BlobSource, LeaseHandler};
use forebay::forebay_cluster::host_functions::FunctionRule;
use forebay::forebay_cluster::job_handler::JobHandler;
use forebay::forebay_cluster::jobs::JobSettings;
use forebay_python_functions::code::PickleVersions;
use forebay_python_functions::{Interpreter, WorkerFunctions};
use forebay_runtime::task::panic_message;
use futures::FutureExt;
use futures::future::{AbortHandle, Abortable, BoxFuture};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::rows::encode;
use crate::memory::Memory;
use crate::wait::wait;
use crate::{config, runtime};

/// Computes leases on the threads that call it. All leases share the jobs that are open.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct RayWorker {
    handler: JobHandler,
    /// The leases that are computed now, by the numbers that the client gave them.
    running: Mutex<HashMap<u64, AbortHandle>>,
}

/// The summary of a lease, and its encoded rows; or the reason why this worker cannot compute it.
type Computed<'py> = (Option<(Bound<'py, PyBytes>, Memory)>, Option<String>);

#[pymethods]
impl RayWorker {
    /// Creates a worker without open jobs. `threads` and `memory_limit` are those of each pipeline,
    /// `roots` has the client's names of folders with the names that they have here, and
    /// `interpreter` is the program that runs the Python functions of pipelines. `versions` are its
    /// versions of Python and of cloudpickle, or None if it lacks cloudpickle.
    #[new]
    #[pyo3(signature = (threads, memory_limit, roots, interpreter, versions))]
    fn new(
        py: Python<'_>,
        threads: Option<usize>,
        memory_limit: Option<Bound<'_, PyAny>>,
        roots: Vec<(String, String)>,
        interpreter: OsString,
        versions: Option<(String, String)>,
    ) -> PyResult<Self> {
        let memory_limit = memory_limit.map(|value| config::bytes(py, &value));
        let functions = match versions {
            Some((python, cloudpickle)) => {
                let versions = PickleVersions {
                    python,
                    cloudpickle,
                };
                let interpreter = Interpreter::of(interpreter, versions);
                FunctionRule::Run(Arc::new(WorkerFunctions::new(interpreter)))
            }
            // Pipelines without functions need no cloudpickle.
            None => FunctionRule::Refuse(
                "the actor cannot run Python functions: install cloudpickle where it runs, with `pip install 'forebay[udf]'`"
                    .to_owned(),
            ),
        };
        let settings = JobSettings {
            threads,
            memory_limit: memory_limit.transpose()?,
            roots,
            functions,
            ..JobSettings::default()
        };
        Ok(Self {
            handler: JobHandler::new(settings),
            running: Mutex::default(),
        })
    }

    /// Computes the lease `payload`, to which the client gave `number`. `blobs` returns the blob that
    /// has a hash in hexadecimal digits, or None.
    fn compute<'py>(
        &self,
        py: Python<'py>,
        number: u64,
        payload: Vec<u8>,
        blobs: Py<PyAny>,
    ) -> PyResult<Computed<'py>> {
        let (abort, registration) = AbortHandle::new_pair();
        self.running().insert(number, abort);
        let work = Abortable::new(self.computed(payload, blobs), registration);
        let outcome = wait(py, AssertUnwindSafe(work).catch_unwind());
        self.running().remove(&number);
        Ok(match outcome? {
            Ok(Ok(Ok((summary, rows)))) => {
                let size = rows.len();
                let rows = Memory::made(rows, vec![size], "|u1");
                (Some((PyBytes::new(py, &summary), rows)), None)
            }
            Ok(Ok(Err(cause))) => (None, Some(cause)),
            Ok(Err(aborted)) => (None, Some(aborted.to_string())),
            Err(panic) => {
                let cause = format!("the worker panicked: {}", panic_message(&*panic));
                (None, Some(cause))
            }
        })
    }

    /// Stops computing the lease `number`, if it runs.
    fn cancel(&self, number: u64) {
        if let Some(lease) = self.running().get(&number) {
            lease.abort();
        }
    }
}

impl RayWorker {
    fn running(&self) -> MutexGuard<'_, HashMap<u64, AbortHandle>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes a lease, and returns its summary and its encoded rows.
    async fn computed(
        &self,
        payload: Vec<u8>,
        blobs: Py<PyAny>,
    ) -> Result<(bytes::Bytes, Buffer), String> {
        let blobs = Arc::new(ActorBlobs(Arc::new(blobs)));
        let output = self.handler.compute(payload.into(), blobs).await;
        let output = output.map_err(|error| error.to_string())?;
        let rows = encode(&output.batches).map_err(|error| error.to_string())?;
        Ok((output.summary, rows))
    }
}

/// The blobs that an actor got from its client: a Python function from a hash to bytes or None.
struct ActorBlobs(Arc<Py<PyAny>>);

impl fmt::Debug for ActorBlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ActorBlobs")
    }
}

impl BlobSource for ActorBlobs {
    fn get(&self, hash: BlobHash) -> BoxFuture<'static, Result<bytes::Bytes, BlobError>> {
        let blobs = Arc::clone(&self.0);
        async move {
            let found = runtime::blocking(move |py| {
                let found = blobs.call1(py, (hash.to_string(),))?;
                found.extract::<Option<Vec<u8>>>(py)
            });
            let unavailable = |cause: String| BlobError::Unavailable { hash, cause };
            let found = found
                .await
                .map_err(|error| unavailable(error.to_string()))?;
            let blob = found.ok_or(BlobError::Missing(hash))?;
            if BlobHash::of(&blob) == hash {
                Ok(blob.into())
            } else {
                Err(unavailable("the actor has other bytes".to_owned()))
            }
        }
        .boxed()
    }
}
