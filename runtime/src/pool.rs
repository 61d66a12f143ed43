//! The compute pool: the threads that may work without pause, beside those that serve I/O.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use datafusion::common::{Result, internal_datafusion_err};
use tokio::sync::oneshot;

/// A rayon pool that asynchronous code hands work to.
#[derive(Debug, Clone)]
pub struct ComputePool(Arc<rayon::ThreadPool>);

impl ComputePool {
    /// Starts this many threads.
    pub fn new(threads: usize) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("forebay-compute-{i}"))
            .build()
            .map_err(|e| internal_datafusion_err!("cannot start {threads} compute threads: {e}"))?;
        Ok(Self(Arc::new(pool)))
    }

    /// Runs `work` on the pool, where it may use rayon's parallel iterators. Its panics are errors.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, result) = oneshot::channel();
        self.0.spawn(move || {
            let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
                let what = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
                let what = what.or_else(|| panic.downcast_ref::<String>().cloned());
                let what = what.unwrap_or_else(|| "no message".to_owned());
                Err(internal_datafusion_err!(
                    "work on the compute pool panicked: {what}"
                ))
            });
            // The receiver is gone where the run was dropped; then nobody wants the answer.
            let _ = answer.send(done);
        });
        result
            .await
            .map_err(|_| internal_datafusion_err!("the compute pool dropped its work"))?
    }
}
