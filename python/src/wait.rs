//! Waits for futures without holding the GIL, but responds to Ctrl-C.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::time::timeout;

use crate::{log_records, runtime};

/// Maximum delay of the response to Ctrl-C.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// Waits for a future's value. Other Python threads run meanwhile. If a signal handler raises an
/// exception, as Python's handler of Ctrl-C does, the future is dropped and the exception is
/// returned.
pub(crate) fn wait<T: Send>(py: Python<'_>, future: impl Future<Output = T> + Send) -> PyResult<T> {
    let handle = runtime::handle(py)?;
    let mut future = pin!(future);
    loop {
        let slice = py.detach(|| handle.block_on(async { timeout(SLICE, future.as_mut()).await }));
        if let Ok(value) = slice {
            log_records::pass_on_beside(py);
            return Ok(value);
        }
        log_records::pass_on(py)?;
        py.check_signals()?;
    }
}
