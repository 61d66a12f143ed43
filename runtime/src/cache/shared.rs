//! State that the clones of a store and its entries share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use object_store::path::Path;
use object_store::{PutMode, PutPayload};

use super::error::CacheError;
use super::files::Files;
use super::recent::Recent;

/// Options of a store. Processes that share a store may have different options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOptions {
    /// Maximum size of the store in bytes; `None` when only the disk limits the size. Each process
    /// that writes at the same time as others may exceed the maximum by one segment.
    pub quota: Option<u64>,
    /// Target size of the rows in a segment, in bytes. A writer holds up to twice this size in
    /// memory.
    pub segment_bytes: u64,
    /// Target size of a block in bytes. Reading a row reads its whole block. A row larger than the
    /// target size is a block by itself.
    pub block_bytes: u64,
    /// Maximum size in bytes of the decoded blocks that are kept in memory for later reads.
    pub kept_bytes: usize,
    /// Time for which a lease, the write lock in an object store, is valid without renewal. An idle
    /// or crashed writer keeps others from writing for this long.
    pub lease: Duration,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            quota: None,
            segment_bytes: 64 << 20,
            block_bytes: 256 << 10,
            kept_bytes: 16 << 20,
            lease: Duration::from_secs(300),
        }
    }
}

/// The state that the clones of a store and its entries share.
#[derive(Debug)]
pub(super) struct StoreState {
    pub(super) files: Arc<Files>,
    pub(super) options: CacheOptions,
    pub(super) recent: Recent,
    /// Held from the check for free space until the segment is written, so that two writers do not
    /// use the same space.
    pub(super) admission: tokio::sync::Mutex<()>,
    pub(super) damaged: AtomicU64,
}

impl StoreState {
    pub(super) fn new(files: Files, options: CacheOptions) -> Self {
        Self {
            files: Arc::new(files),
            recent: Recent::new(options.kept_bytes),
            options,
            admission: tokio::sync::Mutex::default(),
            damaged: AtomicU64::new(0),
        }
    }

    pub(super) async fn save_bandwidth(&self) -> Result<(), CacheError> {
        let history = self.files.meter.history(self.files.clock.unix_ms());
        let json = serde_json::to_vec(&history);
        let json = json.map_err(|e| CacheError::Invariant(e.to_string()))?;
        let path = self.files.bandwidth();
        let put = self
            .files
            .put(&path, PutPayload::from(json), PutMode::Overwrite);
        put.await.map(drop)
    }

    /// Counts and logs that the stored object at `path` is damaged.
    pub(super) fn report_damage(&self, path: &Path, cause: &str) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        log::warn!("the cache segment '{path}' is damaged ({cause}): its rows are computed again");
    }
}
