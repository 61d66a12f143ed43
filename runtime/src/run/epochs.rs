//! The order of a run's epochs where rows are cached: what one epoch computes is read by the next.

use super::job_run::JobRun;
use crate::segment::CacheUse;

impl JobRun {
    /// Returns the numbers of rows at the cache point so far, in this process or on the workers of
    /// the run's engine; `None` without a cache.
    pub(super) fn cache_use(&self) -> Option<CacheUse> {
        match &self.engine {
            Some(engine) => engine.cache_use(&self.job),
            None => self.job.cache_use(),
        }
    }

    /// Begins `epoch`, whose rows are computed after those of the epoch before were written to the
    /// cache.
    pub(super) async fn begin_epoch(&self, epoch: u64) {
        let Some(cached) = &self.job.plan.reader.cached else {
            return;
        };
        match &self.engine {
            Some(engine) => engine.publish(&self.job).await,
            None => cached.begin_epoch().await,
        }
        let computed = self.cache_use().unwrap_or_default().computed;
        self.gate.begin(epoch, computed);
    }

    /// Waits until `epoch` has begun. Returns at once if no rows are left to write, or if this
    /// process does not write them.
    pub(super) async fn epoch_begun(&self, epoch: u64) {
        let Some(cached) = &self.job.plan.reader.cached else {
            return;
        };
        if self.engine.is_some() || !cached.only_reads() {
            self.gate.wait(epoch).await;
        }
    }

    /// Writes the rows that are not in the cache yet.
    pub(super) async fn publish(&self) {
        match &self.engine {
            Some(engine) if self.job.plan.reader.cached.is_some() => {
                engine.publish(&self.job).await;
            }
            Some(_) => {}
            None => self.job.publish().await,
        }
    }
}
