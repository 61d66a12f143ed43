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
    /// Has a receiver for each of the job's tasks that have not finished.
    unfinished: Arc<watch::Sender<()>>,
}

/// Returns the number of compute threads: `wanted`, or the number of cores.
pub(crate) fn threads(wanted: Option<usize>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    wanted.unwrap_or(cores).max(1)
}

impl ComputePool {
    /// Starts `wanted` threads for one job, or shares the process's pool, which has one thread per core. The threads
    /// of one job end when no one holds the pool and all its work is done.
    ///
    /// A job that is opened inside a task of another job gets threads of its own. Otherwise, all
    /// threads of the process's pool might be waiting for jobs that need the same threads.
    ///
    /// # Errors
    /// Fails if the system cannot start the threads.
    pub fn open(wanted: Option<usize>, room: Arc<DecodeRoom>) -> Result<Self> {
        let shared = if wanted.is_none() && rayon::current_thread_index().is_none() {
            SHARED.get_or_try_init(|| start(threads(None)))?
        } else {
            None
        };
        Ok(Self {
            pool: match shared {
                Some(shared) => shared,
                None => Arc::new(start(threads(wanted))?),
            },
            room,
            unfinished: Arc::default(),
        })
    }

    /// Waits until none of the job's tasks is running.
    pub async fn idle(&self) {
        self.unfinished.closed().await;
    }

    /// Runs `work` on the pool, where it may use rayon's parallel iterators. A panic becomes an
    /// error. Work whose caller no longer waits when it is scheduled is skipped.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, result) = oneshot::channel();
        let (room, unfinished) = (Arc::clone(&self.room), self.unfinished.subscribe());
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
        let pool = ComputePool::open(Some(2), room()).unwrap();
        let other = ComputePool {
            unfinished: Arc::default(),
            ..pool.clone()
        };
        let (release, wait) = mpsc::channel::<()>();
        let blocked = other.run(move || Ok(wait.recv().is_ok()));
        let threads = pool.run(|| Ok(rayon::current_num_threads()));
        let mut blocked = std::pin::pin!(blocked);
        assert!(futures::poll!(blocked.as_mut()).is_pending());
        assert_eq!(threads.await.unwrap(), 2);
        pool.idle().await;
        assert_eq!(other.unfinished.receiver_count(), 1);
        release.send(()).unwrap();
        assert!(blocked.await.unwrap());
        other.idle().await;
    }

    #[tokio::test]
    async fn a_job_opened_inside_a_task_has_its_own_threads() {
        let outer = ComputePool::open(None, room()).unwrap();
        let again = ComputePool::open(None, room()).unwrap();
        assert!(Arc::ptr_eq(&outer.pool, &again.pool));
        let inner = outer.run(|| ComputePool::open(None, room())).await.unwrap();
        assert!(!Arc::ptr_eq(&outer.pool, &inner.pool));
    }
}
