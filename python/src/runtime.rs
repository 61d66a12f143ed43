//! The threads that serve I/O: one tokio runtime per process, started on first use.
//!
//! Threads do not survive `fork`. A forked child process starts a new runtime. The child never uses
//! or drops the parent's runtime, since waiting for threads that do not exist would never end.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};

struct Owned {
    process: u32,
    runtime: Arc<ManuallyDrop<Runtime>>,
}

/// The runtime of this process. A thread takes the lock only while it holds the GIL, and releases
/// the lock before it calls into Python. So no other thread holds the lock when the process forks.
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
    // After a fork, `owned` held the runtime of the parent process. That runtime is not dropped
    // (see `ManuallyDrop`), since the parent's threads do not exist in this process.
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
