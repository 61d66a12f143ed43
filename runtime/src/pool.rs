//! Compute pools: threads for computation, separate from those that serve I/O.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use datafusion::common::{Result, internal_datafusion_err};
use forebay_udfs::room::{self, DecodeRoom};
use tokio::sync::{oneshot, watch};

use crate::process_wide::ProcessWide;
use crate::task::panicked;

/// The threads that jobs share unless they set a number of threads.
static SHARED: ProcessWide<rayon::ThreadPool> = ProcessWide::new();

/// A job's share of a thread pool.
#[derive(Debug, Clone)]
pub struct ComputePool {
    pool: Arc<rayon::ThreadPool>,
    /// Memory for the images that the job decodes.
    room: Arc<DecodeRoom>,
    /// Number of the job's tasks that have not finished.
    unfinished: Arc<watch::Sender<usize>>,
}

/// Counts a task as unfinished until it is dropped.
struct Unfinished(Arc<watch::Sender<usize>>);

impl Unfinished {
    fn new(count: &Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|unfinished| *unfinished += 1);
        Self(Arc::clone(count))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.send_modify(|unfinished| *unfinished -= 1);
    }
}

impl ComputePool {
    /// Starts `threads` threads for one job, or shares the process's pool if `threads` is `None`.
    ///
    /// # Errors
    /// Fails if the system cannot start the threads.
    pub fn open(threads: Option<usize>, room: Arc<DecodeRoom>) -> Result<Self> {
        match threads {
            Some(threads) => Self::new(threads.max(1), room),
            None => Self::shared(room),
        }
    }

    /// Returns a share of the process's pool, which has one thread per core.
    ///
    /// A job that is opened inside a task of another job gets threads of its own. Otherwise, all
    /// threads of the process's pool might be waiting for jobs that need the same threads.
    ///
    /// # Errors
    /// Fails if the system cannot start the threads.
    fn shared(room: Arc<DecodeRoom>) -> Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        if rayon::current_thread_index().is_some() {
            return Self::new(cores, room);
        }
        match SHARED.get_or_try_init(|| start(cores))? {
            Some(pool) => Ok(Self::of(pool, room)),
            None => Self::new(cores, room),
        }
    }

    /// Starts `threads` threads for one job. The threads end when no one holds the pool and all its
    /// work is done.
    ///
    /// # Errors
    /// Fails if the system cannot start the threads.
    fn new(threads: usize, room: Arc<DecodeRoom>) -> Result<Self> {
        Ok(Self::of(Arc::new(start(threads)?), room))
    }

    fn of(pool: Arc<rayon::ThreadPool>, room: Arc<DecodeRoom>) -> Self {
        Self {
            pool,
            room,
            unfinished: Arc::default(),
        }
    }

    /// Waits until none of the job's tasks is running.
    pub async fn idle(&self) {
        let mut unfinished = self.unfinished.subscribe();
        // The sender lives as long as `self`.
        let _ = unfinished.wait_for(|&unfinished| unfinished == 0).await;
    }

    /// Runs `work` on the pool, where it may use rayon's parallel iterators. A panic becomes an
    /// error. Work whose caller no longer waits when it is scheduled is skipped.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, result) = oneshot::channel();
        let (room, unfinished) = (Arc::clone(&self.room), Unfinished::new(&self.unfinished));
        let work = move || {
            if answer.is_closed() {
                return;
            }
            let work = || catch_unwind(AssertUnwindSafe(work));
            let done = room::within(room, work)
                .unwrap_or_else(|panic| Err(panicked("work on the compute pool", &*panic)));
            // The receiver is gone if the run was dropped.
            let _ = answer.send(done);
            drop(unfinished);
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

fn start(threads: usize) -> Result<rayon::ThreadPool> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|i| format!("forebay-compute-{i}"))
        .build()
        .map_err(|e| internal_datafusion_err!("cannot start {threads} compute threads: {e}"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn room() -> Arc<DecodeRoom> {
        Arc::new(DecodeRoom::new(0, false))
    }

    #[tokio::test]
    async fn a_job_is_idle_once_its_own_work_has_ended() {
        let pool = ComputePool::new(2, room()).unwrap();
        let other = ComputePool::of(Arc::clone(&pool.pool), room());
        let (release, wait) = mpsc::channel::<()>();
        let blocked = other.run(move || Ok(wait.recv().is_ok()));
        let threads = pool.run(|| Ok(rayon::current_num_threads()));
        let mut blocked = std::pin::pin!(blocked);
        assert!(futures::poll!(blocked.as_mut()).is_pending());
        assert_eq!(threads.await.unwrap(), 2);
        pool.idle().await;
        assert_eq!(*other.unfinished.borrow(), 1);
        release.send(()).unwrap();
        assert!(blocked.await.unwrap());
        other.idle().await;
    }

    #[tokio::test]
    async fn a_job_opened_inside_a_task_has_its_own_threads() {
        let outer = ComputePool::shared(room()).unwrap();
        let again = ComputePool::shared(room()).unwrap();
        assert!(Arc::ptr_eq(&outer.pool, &again.pool));
        let inner = outer.run(|| ComputePool::shared(room())).await.unwrap();
        assert!(!Arc::ptr_eq(&outer.pool, &inner.pool));
    }
}
