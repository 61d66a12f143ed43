//! Tasks of clients, the scheduler and the workers.
//!
//! No other module of this crate starts tasks. `clippy.toml` forbids the functions that do, because a task that panics drops what it owns without a word.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use forebay_runtime::task::panic_message;
use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Starts a task that ends by itself or with its runtime. A panic of the task is logged.
pub(crate) fn start(
    runtime: &Handle,
    what: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let work = async move {
        if let Err(panic) = AssertUnwindSafe(work).catch_unwind().await {
            tracing::error!("{what} panicked: {}", panic_message(&*panic));
        }
    };
    #[expect(clippy::disallowed_methods, reason = "the one place of this crate that starts tasks")]
    runtime.spawn(work)
}
