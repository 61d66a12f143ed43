//! Compute pools: threads for computation, separate from those that serve I/O.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use datafusion::common::{Result, internal_datafusion_err};
use forebay_udfs::decode_scope::DecodeScope;
use forebay_udfs::seek_index_store::SeekIndexAccess;
use tokio::sync::{oneshot, watch};

use crate::process_wide::ProcessWide;
use crate::task::panicked;

/// The threads that all jobs share that do not set a number of threads.
static SHARED: ProcessWide<rayon::ThreadPool> = ProcessWide::new();

/// Handle of a job to a thread pool, which the job may share with other jobs.
#[derive(Debug, Clone)]
pub struct ComputePool {
    pool: Arc<rayon::ThreadPool>,
    /// Memory and seek indexes for decoding the job's images.
    decoding: DecodeScope,
    /// Counts the job's unfinished tasks: each of them holds a receiver of this channel.
    unfinished: Arc<watch::Sender<()>>,
}

/// Returns the number of compute threads: `wanted`, or the number of cores if `wanted` is `None`.
pub(crate) fn threads(wanted: Option<usize>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    wanted.unwrap_or(cores).max(1)
}

impl ComputePool {
    /// Starts `wanted` threads for one job. If `wanted` is `None`, the job shares the process's
    /// pool, which has one thread per core. Threads of one job end when the pool is dropped and all
    /// its work is done.
    ///
    /// A job that is opened inside a task of another job gets separate threads. Otherwise, all
    /// threads of the process's pool might wait for jobs that need the same threads.
    ///
    /// # Errors
    /// Fails if the system cannot start the threads.
    pub fn open(wanted: Option<usize>, decoding: DecodeScope) -> Result<Self> {
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
            decoding,
            unfinished: Arc::default(),
        })
    }

    /// Returns the memory that seek indexes take in this process, in bytes; `None` if the job uses none.
    pub(crate) fn seek_index_bytes(&self) -> Option<u64> {
        self.decoding.indexes.as_ref().map(SeekIndexAccess::bytes)
    }

    /// Waits until none of the job's tasks is running.
    pub async fn idle(&self) {
        self.unfinished.closed().await;
    }

    /// Runs `work` on the pool, where `work` may use rayon's parallel iterators. A panic of `work`
    /// becomes an error. If the returned future was dropped before a thread is free, `work` is
    /// skipped.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, result) = oneshot::channel();
        let (decoding, unfinished) = (self.decoding.clone(), self.unfinished.subscribe());
        let work = move || {
            if answer.is_closed() {
                return;
            }
            let work = || catch_unwind(AssertUnwindSafe(work));
            let done = { decoding.within(work) }
                .unwrap_or_else(|panic| Err(panicked("work on the compute pool", &*panic)));
            // Sending fails if the run was dropped, and then nobody needs the result.
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

    use forebay_udfs::room::DecodeRoom;

    use super::*;

    fn decoding() -> DecodeScope {
        DecodeScope {
            room: Arc::new(DecodeRoom::new(0, false)),
            indexes: None,
        }
    }

    #[tokio::test]
    async fn a_job_is_idle_once_its_own_work_has_ended() {
        let pool = ComputePool::open(Some(2), decoding()).unwrap();
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
        let outer = ComputePool::open(None, decoding()).unwrap();
        let again = ComputePool::open(None, decoding()).unwrap();
        assert!(Arc::ptr_eq(&outer.pool, &again.pool));
        let inner = outer
            .run(|| ComputePool::open(None, decoding()))
            .await
            .unwrap();
        assert!(!Arc::ptr_eq(&outer.pool, &inner.pool));
    }
}
