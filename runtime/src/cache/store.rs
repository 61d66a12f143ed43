//! A store of cached rows: a directory, or a location in an object store.

use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;

use super::bandwidth::{Bandwidth, Meter, Traffic};
use super::clock::Clock;
use super::entry::{Entry, EntryInfo};
use super::error::CacheError;
use super::files::Files;
use super::key::CacheKey;
use super::shared::{CacheOptions, StoreState};
use crate::objects::Store;

/// A content-addressed store of computed rows, opened by [`Stores`](super::Stores). Cheap to clone;
/// all clones are the same store.
#[derive(Debug, Clone)]
pub struct CacheStore {
    pub(super) shared: Arc<StoreState>,
}

/// Traffic of this process with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of the segments written, and the time that writing took.
    pub written: Traffic,
    /// Bytes of the blocks and indexes read, and the time that reading took.
    pub read: Traffic,
    /// Number of times that a stored object was found damaged or missing.
    pub damaged: u64,
}

impl CacheStore {
    /// Opens `directory` as a store, after creating `directory` if necessary. The files in
    /// `directory` are accessed through the object store that `wrap` returns, which tests use to
    /// inject failures.
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
            root: None,
            prefix: Path::default(),
            directory: Some(directory),
            clock,
            meter: Meter::default(),
        };
        Ok(Self::with_files(files, options).await)
    }

    /// Opens a location in an object store. A directory is opened by
    /// [`in_directory`](Self::in_directory) instead, because the operating system releases the lock
    /// files of a process that dies.
    pub(super) async fn in_objects(
        store: Store,
        prefix: Path,
        options: CacheOptions,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let files = Files {
            store: store.client,
            root: Some(store.root),
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
            shared: Arc::new(StoreState::new(files, options)),
        }
    }

    /// Opens the entry of `key`, with the rows that are stored for `key` now. An entry without rows
    /// is not an error.
    ///
    /// # Errors
    /// The store cannot be read, or the schema cannot be stored.
    pub async fn entry(&self, key: CacheKey, info: EntryInfo) -> Result<Entry, CacheError> {
        Entry::open(Arc::clone(&self.shared), key, info).await
    }

    /// Returns the bandwidth of the store, measured by this process and by earlier processes.
    pub fn bandwidth(&self) -> Bandwidth {
        self.shared.files.meter.bandwidth()
    }

    /// Returns the traffic of this process with the store.
    pub fn counters(&self) -> Counters {
        let (written, read) = self.shared.files.meter.traffic();
        Counters {
            written,
            read,
            damaged: self.shared.damaged.load(Ordering::Relaxed),
        }
    }

    /// Saves the measured bandwidth in the store, for the planning of later runs.
    /// [`Writer::finish`](super::Writer::finish) saves the bandwidth, too. After an epoch that only
    /// read, the caller should call this method.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn save_bandwidth(&self) -> Result<(), CacheError> {
        self.shared.save_bandwidth().await
    }
}
