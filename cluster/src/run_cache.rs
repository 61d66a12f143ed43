//! The use that a run makes of the cache that its workers share.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_runtime::run::{CacheUse, SharedCache};

use crate::direct::ask_all;
use crate::engine::{BlobHash, LeaseEngine};
use crate::request::{PublishRequest, WorkerRequest};

/// The cache of a run's job, and the use that the run makes of it.
#[derive(Debug)]
pub(crate) struct RunCache {
    pub(crate) job: SharedCache,
    read: AtomicU64,
    computed: AtomicU64,
    /// Number of rows that were computed before the last publication.
    published: AtomicU64,
    /// A number that changes with each publication.
    view: AtomicU64,
}

impl RunCache {
    pub(crate) fn new(job: SharedCache) -> Self {
        Self {
            job,
            read: AtomicU64::default(),
            computed: AtomicU64::default(),
            published: AtomicU64::default(),
            view: AtomicU64::new(RandomState::new().build_hasher().finish()),
        }
    }

    /// Returns the number that leases carry. A worker that sees a new one looks for the rows that
    /// others have published.
    pub(crate) fn view(&self) -> u64 {
        self.view.load(Ordering::Relaxed)
    }

    /// Adds the rows of a lease.
    pub(crate) fn add(&self, rows: CacheUse) {
        self.read.fetch_add(rows.read, Ordering::Relaxed);
        self.computed.fetch_add(rows.computed, Ordering::Relaxed);
    }

    /// Returns the rows of all leases so far.
    pub(crate) fn rows(&self) -> CacheUse {
        CacheUse {
            read: self.read.load(Ordering::Relaxed),
            computed: self.computed.load(Ordering::Relaxed),
        }
    }

    /// Has all workers publish the rows that they have computed for the job `hash`, so that the
    /// leases that follow find them.
    pub(crate) async fn publish(&self, engine: &dyn LeaseEngine, hash: BlobHash) {
        let computed = self.computed.load(Ordering::Relaxed);
        if self.published.swap(computed, Ordering::Relaxed) == computed {
            return;
        }
        let request = WorkerRequest::Publish(PublishRequest::new(hash));
        let published = match engine.workers().await {
            Ok(workers) => ask_all(engine, &workers, &request).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = published {
            tracing::warn!("rows were not cached now, and are computed again: {error}");
        }
        self.view.fetch_add(1, Ordering::Relaxed);
    }
}
