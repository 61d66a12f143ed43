//! The threads that serve I/O: one tokio runtime per process, started on first use.
//!
//! Threads do not survive `fork`. A forked child process starts a new runtime. The child never uses
//! or drops the parent's runtime, since waiting for threads that do not exist would never end.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use crate::process::OfProcess;

/// The runtime of this process. A thread takes the lock only while it holds the GIL, and releases
/// the lock before it calls into Python. So no other thread holds the lock when the process forks.
static RUNTIME: Mutex<Option<OfProcess<Runtime>>> = Mutex::new(None);

/// Returns a handle of this process's runtime.
pub(crate) fn handle(_py: Python<'_>) -> PyResult<Handle> {
    let mut owned = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = owned.as_ref().and_then(OfProcess::get) {
        return Ok(runtime.handle().clone());
    }
    let runtime = Builder::new_multi_thread()
        .thread_name("forebay-io")
        .enable_all()
        .build()
        .map_err(|e| PyRuntimeError::new_err(format!("cannot start threads: {e}")))?;
    let handle = runtime.handle().clone();
    *owned = Some(OfProcess::new(runtime));
    Ok(handle)
}

/// Ends the threads of this process's runtime, and stops their tasks.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) {
    let owned = RUNTIME
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(runtime) = owned.and_then(OfProcess::take) {
        py.detach(|| runtime.shutdown_background());
    }
}

/// Starts a call of Python on a thread that may wait for the GIL. The caller must check how the call
/// ended.
#[must_use]
pub(crate) fn start<T: Send + 'static>(
    runtime: &Handle,
    call: impl FnOnce(Python<'_>) -> PyResult<T> + Send + 'static,
) -> JoinHandle<PyResult<T>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place of this crate that starts such calls"
    )]
    runtime.spawn_blocking(|| Python::attach(call))
}

/// Calls Python on a thread that may wait for the GIL.
pub(crate) async fn blocking<T: Send + 'static>(
    call: impl FnOnce(Python<'_>) -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    start(&Handle::current(), call)
        .await
        .unwrap_or_else(|lost| Err(PyRuntimeError::new_err(lost.to_string())))
}
