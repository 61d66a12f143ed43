//! Engines that compute the segments of a run elsewhere, such as on the workers of a cluster.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};

use crate::error::Result;
use crate::fragment::row_batch::RowBatch;
use crate::job::{CountShare, JobWork, OpenJob, ShareName};
use crate::segment::{CacheUse, SegmentName};

/// Computes the segments of a run, and counts rows for it. The run plans segments, and makes batches
/// of their rows; the engine computes the rows, in this process or on other machines.
pub trait SegmentEngine: fmt::Debug + Send + Sync {
    /// Computes `segments` of `job`, and returns their rows in the same order. A segment has one
    /// batch, or several if its rows do not fit into one. An error takes the place of its segment,
    /// and ends the run unless the run does not need the segment.
    ///
    /// The engine takes segments from the stream as early as it has room for their rows. Dropping
    /// the returned stream stops the work.
    fn compute(
        &self,
        job: &Arc<OpenJob>,
        segments: BoxStream<'static, SegmentName>,
    ) -> BoxStream<'static, Result<Vec<RowBatch>>>;

    /// Counts a share of the stored rows of `job`.
    fn count(&self, job: &Arc<OpenJob>, share: ShareName)
    -> BoxFuture<'static, Result<CountShare>>;

    /// Returns the work that was done for `job` so far. Engines that compute elsewhere return the
    /// work that they know of.
    fn work(&self, job: &OpenJob) -> JobWork {
        job.work()
    }

    /// Returns the columns that this process computes from the rows that the engine gets from
    /// elsewhere, each as `name = expression`.
    fn last_steps(&self) -> &[String] {
        &[]
    }

    /// Returns true if other processes read and write the cache of the engine's jobs, so that this
    /// process does not open its store.
    fn caches_elsewhere(&self) -> bool {
        false
    }

    /// Returns the numbers of rows at the cache point of `job` so far; `None` without a cache.
    fn cache_use(&self, job: &OpenJob) -> Option<CacheUse> {
        job.cache_use()
    }

    /// Writes the rows that were computed at the cache point of `job` to the cache. The segments
    /// that the engine takes afterwards find them.
    fn publish(&self, job: &Arc<OpenJob>) -> BoxFuture<'static, ()> {
        let job = Arc::clone(job);
        async move { job.publish().await }.boxed()
    }
}

/// Computes segments in this process from their names, as a worker does. Tests compare it with the
/// local engine.
#[derive(Debug, Clone, Copy)]
pub struct ByName {
    /// Number of segments that are computed concurrently.
    pub at_once: usize,
}

impl SegmentEngine for ByName {
    fn compute(
        &self,
        job: &Arc<OpenJob>,
        segments: BoxStream<'static, SegmentName>,
    ) -> BoxStream<'static, Result<Vec<RowBatch>>> {
        let job = Arc::clone(job);
        segments
            .map(move |name| {
                let job = Arc::clone(&job);
                async move {
                    let computed = job.compute(&name).await?;
                    let batches = job.to_batches(&computed.rows)?;
                    job.received(&job.segment_schema(), &name, &batches)
                }
            })
            .buffered(self.at_once.max(1))
            .boxed()
    }

    fn count(
        &self,
        job: &Arc<OpenJob>,
        share: ShareName,
    ) -> BoxFuture<'static, Result<CountShare>> {
        let job = Arc::clone(job);
        async move { job.count(&share).await }.boxed()
    }
}
