//! The threads that serve I/O: one tokio runtime per process, started on first use.
//!
//! Threads do not survive `fork`. A child process never uses or drops the parent's runtime, since
//! waiting for threads that do not exist would never end; the child starts its own runtime.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};

struct Owned {
    process: u32,
    runtime: Arc<ManuallyDrop<Runtime>>,
}

/// The lock is taken only with the GIL held, and never kept across a call into Python, so no other
/// thread holds it at a fork.
static RUNTIME: Mutex<Option<Owned>> = Mutex::new(None);

/// Returns a handle of this process's runtime.
pub(crate) fn handle(_py: Python<'_>) -> PyResult<Handle> {
    let mut owned = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some(Owned { runtime, .. }) = owned.as_ref().filter(|owned| owned.process == process) {
        return Ok(runtime.handle().clone());
    }
    let runtime = Builder::new_multi_thread()
        .thread_name("forebay-io")
        .enable_all()
        .build()
        .map_err(|e| PyRuntimeError::new_err(format!("cannot start threads: {e}")))?;
    let handle = runtime.handle().clone();
    let runtime = Arc::new(ManuallyDrop::new(runtime));
    // The runtime of a parent process is not dropped, since only its memory was copied to this
    // process.
    *owned = Some(Owned { process, runtime });
    Ok(handle)
}

/// Ends the threads of this process's runtime, and stops their tasks.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) {
    let owned = RUNTIME
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some(Owned { process, runtime }) = owned else {
        return;
    };
    if process == std::process::id()
        && let Some(runtime) = Arc::into_inner(runtime)
    {
        py.detach(|| ManuallyDrop::into_inner(runtime).shutdown_background());
    }
}
