//! A store of cached rows: a directory, or a place in an object store.

use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, PutMode, PutPayload};

use super::admin::Summary;
use super::bandwidth::{Bandwidth, MEASURED_BYTES, Meter, Traffic};
use super::clock::Clock;
use super::entry::{Entry, EntryInfo};
use super::error::CacheError;
use super::files::Files;
use super::key::CacheKey;
use super::recent::Recent;

/// How a store is used. Processes that share a store may use it differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOptions {
    /// Bytes that the store may take; `None`: all that the disk has. Several processes that write at
    /// once may go beyond it by a segment each.
    pub quota: Option<u64>,
    /// Bytes of rows in a segment, about. A writer holds up to twice as many in memory.
    pub segment_bytes: u64,
    /// Bytes of rows that are read at least to read one, about; a larger row is read alone.
    pub block_bytes: u64,
    /// Bytes of decoded blocks that are kept in memory for the next read.
    pub kept_bytes: usize,
    /// Object stores: how long a writer that does not write keeps others from writing.
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

/// A content-addressed store of computed rows, which [`Stores`](super::Stores) opens. Cheap to clone; clones are
/// one store.
#[derive(Debug, Clone)]
pub struct CacheStore {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) files: Arc<Files>,
    pub(super) options: CacheOptions,
    pub(super) recent: Recent,
    /// Held from asking for room to taking it.
    pub(super) admission: tokio::sync::Mutex<()>,
    damaged: AtomicU64,
}

/// What went through a store in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Segments written.
    pub written: Traffic,
    /// Blocks and indexes read.
    pub read: Traffic,
    /// Times that something stored was found damaged or missing.
    pub damaged: u64,
}

impl CacheStore {
    /// A directory, made where it is missing. Its files are reached through what `wrap` makes of them.
    pub(super) async fn in_directory(
        directory: &FsPath,
        options: CacheOptions,
        clock: Arc<dyn Clock>,
        wrap: impl FnOnce(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>,
    ) -> Result<Self, CacheError> {
        let problem = |cause: String| CacheError::Location {
            location: directory.display().to_string(),
            cause,
        };
        std::fs::create_dir_all(directory).map_err(|e| problem(e.to_string()))?;
        let directory = directory
            .canonicalize()
            .map_err(|e| problem(e.to_string()))?;
        let store =
            LocalFileSystem::new_with_prefix(&directory).map_err(|e| problem(e.to_string()))?;
        let store = store.with_automatic_cleanup(true);
        let files = Files {
            store: wrap(Arc::new(store)),
            prefix: Path::default(),
            directory: Some(directory),
            clock,
            meter: Meter::default(),
        };
        Ok(Self::with_files(files, options).await)
    }

    /// A place in an object store. Directories have [`in_directory`](Self::in_directory), whose locks end
    /// with their process.
    pub(super) async fn in_objects(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        options: CacheOptions,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let files = Files {
            store,
            prefix,
            directory: None,
            clock,
            meter: Meter::default(),
        };
        Self::with_files(files, options).await
    }

    async fn with_files(mut files: Files, options: CacheOptions) -> Self {
        files.meter = Meter::new(files.load_history().await);
        Self {
            shared: Arc::new(Shared {
                files: Arc::new(files),
                recent: Recent::new(options.kept_bytes),
                options,
                admission: tokio::sync::Mutex::default(),
                damaged: AtomicU64::new(0),
            }),
        }
    }

    /// The entry of a key: what is stored of it now. It need not exist.
    ///
    /// # Errors
    /// The store cannot be read, or the schema is none that can be stored.
    pub async fn entry(&self, key: CacheKey, info: EntryInfo) -> Result<Entry, CacheError> {
        Entry::open(Arc::clone(&self.shared), key, info).await
    }

    /// What the store was measured to carry, by this process and those before it.
    pub fn bandwidth(&self) -> Bandwidth {
        self.shared.files.meter.bandwidth()
    }

    /// Reads a part of what is stored, so that what the store was measured to carry once does not count for ever:
    /// a plan that does not read the store would measure nothing. Where that fails, it stays as it was.
    pub async fn measure_again(&self, entries: &[Summary]) {
        let segments = entries
            .iter()
            .flat_map(|entry| entry.segments.iter().map(|segment| (entry.key, segment)));
        let Some((key, segment)) = segments.max_by_key(|(_, segment)| segment.bytes) else {
            return;
        };
        let files = &self.shared.files;
        let path = files.segment(&key, &segment.name);
        let part = 0..segment.bytes.min(MEASURED_BYTES);
        match files.range(&path, segment.bytes, part).await {
            Ok(_) => files.meter.read_again(),
            Err(error) => log::debug!("the store was not measured again: {error:?}"),
        }
    }

    /// What went through the store in this process.
    pub fn counters(&self) -> Counters {
        let (written, read) = self.shared.files.meter.traffic();
        Counters {
            written,
            read,
            damaged: self.shared.damaged.load(Ordering::Relaxed),
        }
    }

    /// Keeps the measured bandwidth with the store, for plans to come. A writer that finishes does
    /// this too; call it after an epoch that only read.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn save_bandwidth(&self) -> Result<(), CacheError> {
        self.shared.save_bandwidth().await
    }
}

impl Shared {
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

    /// Notes that something stored is damaged.
    pub(super) fn report_damage(&self, path: &Path, cause: &str) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        log::warn!("the cache segment '{path}' is damaged ({cause}): its rows are computed again");
    }
}
