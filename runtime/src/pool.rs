//! The compute pool: the threads that may work without pause, beside those that serve I/O.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use datafusion::common::{Result, internal_datafusion_err};
use forebay_udfs::room::{self, DecodeRoom};
use tokio::sync::{oneshot, watch};

use crate::task::panicked;

/// A rayon pool that asynchronous code hands work to.
#[derive(Debug, Clone)]
pub struct ComputePool {
    pool: Arc<rayon::ThreadPool>,
    alive: Arc<watch::Sender<usize>>,
}

/// The threads of a pool. They end when the pool has no holders and no work.
#[derive(Debug)]
pub struct Threads(watch::Receiver<usize>);

impl Threads {
    /// Waits for the end of all threads.
    pub async fn ended(mut self) {
        // Nobody is left to tell of threads where the sender is gone.
        let _ = self.0.wait_for(|&alive| alive == 0).await;
    }
}

impl ComputePool {
    /// Starts this many threads, whose images share a room.
    pub fn new(threads: usize, room: Arc<DecodeRoom>) -> Result<Self> {
        let alive = Arc::new(watch::Sender::new(threads));
        let ended = Arc::clone(&alive);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("forebay-compute-{i}"))
            .start_handler(move |_| room::enter(Arc::clone(&room)))
            .exit_handler(move |_| ended.send_modify(|alive| *alive -= 1))
            .build()
            .map_err(|e| internal_datafusion_err!("cannot start {threads} compute threads: {e}"))?;
        let pool = Arc::new(pool);
        Ok(Self { pool, alive })
    }

    /// The pool's threads.
    pub fn threads(&self) -> Threads {
        Threads(self.alive.subscribe())
    }

    /// Runs `work` on the pool, where it may use rayon's parallel iterators. Its panics are errors.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, result) = oneshot::channel();
        let work = move || {
            let done = catch_unwind(AssertUnwindSafe(work))
                .unwrap_or_else(|panic| Err(panicked("work on the compute pool", &*panic)));
            // The receiver is gone where the run was dropped; then nobody wants the answer.
            let _ = answer.send(done);
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the panic is caught, and sent as the outcome"
        )]
        self.pool.spawn(work);
        result
            .await
            .map_err(|_| internal_datafusion_err!("the compute pool dropped its work"))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn threads_end_with_the_pools_last_holder() {
        let pool = ComputePool::new(2, Arc::new(DecodeRoom::new(0, false))).unwrap();
        let threads = pool.threads();
        let other = pool.clone();
        drop(pool);
        assert_eq!(
            other
                .run(|| Ok(rayon::current_num_threads()))
                .await
                .unwrap(),
            2
        );
        drop(other);
        threads.ended().await;
    }
}
