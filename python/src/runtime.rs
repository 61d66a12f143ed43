//! The threads that serve I/O: one tokio runtime for the process, made when it is first needed.
//!
//! Threads do not survive `fork`. A child that finds its parent's runtime leaves it alone (waiting for
//! threads that are not there would never end) and makes its own.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};

struct Owned {
    process: u32,
    runtime: Arc<ManuallyDrop<Runtime>>,
}

/// Locked with the GIL held, and never across a call of Python: so no other thread holds it at a fork.
static RUNTIME: Mutex<Option<Owned>> = Mutex::new(None);

/// A handle of this process's runtime.
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
    // The one of a parent is not dropped: it is only a copy of memory here.
    *owned = Some(Owned { process, runtime });
    Ok(handle)
}

/// Ends the runtime's threads; what runs on them stops.
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
