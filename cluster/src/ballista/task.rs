//! Tasks of the scheduler and the workers.
//!
//! No other module of this crate starts tasks or runtimes. `clippy.toml` forbids the functions that
//! do, because a task that panics drops what it owns without a word.

use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use forebay_runtime::task::panic_message;
use futures::FutureExt;
use tokio::runtime::{Builder, Handle, Runtime};
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

/// A runtime that belongs to one scheduler or one worker. Ballista starts tasks without handles, so
/// ending the runtime is the only way to end all of them.
#[derive(Debug)]
pub(crate) struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    /// Starts a runtime.
    pub(crate) fn new(name: &str, threads: usize) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(name)
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Returns the handle of the runtime; `None` after its end.
    pub(crate) fn handle(&self) -> Option<&Handle> {
        self.0.as_ref().map(Runtime::handle)
    }

    /// Runs `work` in this runtime, and waits for it from another one.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        let ended = || io::Error::other("the runtime has ended");
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let handle = self.handle().ok_or_else(ended)?;
        start(handle, "starting a service", async move {
            // The caller hung up.
            let _ = sender.send(work.await);
        });
        receiver.await.map_err(|_| ended())
    }

    /// Ends all tasks, and waits for their end so that their sockets are closed.
    pub(crate) async fn stop(&mut self) {
        /// Time that tasks have to reach their next await.
        const PATIENCE: Duration = Duration::from_secs(5);

        let Some(runtime) = self.0.take() else { return };
        #[expect(clippy::disallowed_methods, reason = "a runtime cannot be ended in async code")]
        let ended = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(PATIENCE));
        if ended.await.is_err() {
            tracing::warn!("a runtime did not end in order");
        }
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
