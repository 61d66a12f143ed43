//! Runtimes of the scheduler and of workers.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::ballista::task;

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
        task::start(handle, "starting a service", async move {
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
