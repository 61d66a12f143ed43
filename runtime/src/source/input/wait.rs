//! Waits for requests on threads for blocking work.

use std::io;

use super::failure::failed;
use crate::objects::StoreError;

/// Waits for a request. Its failure is kept for the caller of the parser.
pub(super) fn wait<T>(request: impl Future<Output = Result<T, StoreError>>) -> io::Result<T> {
    wait_for(request).map_err(failed)
}

/// Waits for work of the runtime, to which this thread for blocking work belongs.
pub(super) fn wait_for<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Handle::current().block_on(work)
}
