//! The objects of a cache store: the paths of objects, and functions to read and write objects.
//!
//! ```text
//! bandwidth.json             the measured bandwidth of the store
//! mark                       a text that no other store has
//! locks/KEY                  directories: locked by the process that changes the first shard of KEY
//! KEY/lease.json             object stores: who may change the first shard of KEY, and until when
//! KEY/manifest.json          the segments of the first shard of KEY
//! KEY/used                   when KEY was last used, in milliseconds since 1970
//! KEY/NAME.arrows            a segment: an Arrow IPC stream, followed by an index
//! locks/KEY-N, KEY/N/..      the same of shard N, from 1
//! ```

use std::ops::Range;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};

use super::bandwidth::{History, Meter};
use super::clock::Clock;
use super::error::CacheError;
use super::key::CacheKey;
use crate::objects::cause_of;

/// Maximum size in bytes of each small file: `bandwidth.json`, `used` or a lease. A larger object
/// counts as damaged.
pub(super) const SMALL: u64 = 64 << 10;

/// The objects of a cache: an object store, or a directory that is accessed as an object store.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) store: Arc<dyn ObjectStore>,
    /// URL of the whole object store; `None` for a directory.
    pub(super) root: Option<Arc<str>>,
    pub(super) prefix: Path,
    /// Path of the directory; `None` when the store is an object store.
    pub(super) directory: Option<PathBuf>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) meter: Meter,
}

/// The reason for which bytes of an object could not be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// The object is missing or has the wrong size; trying again does not help.
    Damaged(String),
    /// The store failed; trying again may help.
    Failed(CacheError),
}

impl Files {
    pub(super) fn key_folder(&self, key: &CacheKey) -> Path {
        self.prefix.clone().join(key.to_string())
    }

    pub(super) fn used(&self, key: &CacheKey) -> Path {
        self.key_folder(key).join("used")
    }

    pub(super) fn bandwidth(&self) -> Path {
        self.prefix.clone().join("bandwidth.json")
    }

    /// Reads a whole small object and its version; `None` when the object does not exist. An object
    /// of more than `max` bytes counts as damaged.
    pub(super) async fn read_small(
        &self,
        path: &Path,
        max: u64,
    ) -> Result<Option<(Bytes, UpdateVersion)>, Unreadable> {
        let failed = |error: StoreError| Unreadable::Failed(self.failed("read", path, &error));
        let found = match self.store.get_opts(path, Default::default()).await {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if found.meta.size > max {
            let cause = format!("it has {} bytes, above the limit of {max}", found.meta.size);
            return Err(Unreadable::Damaged(cause));
        }
        let version = UpdateVersion {
            e_tag: found.meta.e_tag.clone(),
            version: found.meta.version.clone(),
        };
        Ok(Some((found.bytes().await.map_err(failed)?, version)))
    }

    /// Checks that an object has `size` bytes.
    pub(super) async fn check_size(&self, path: &Path, size: u64) -> Result<(), Unreadable> {
        match self.store.head(path).await {
            Ok(meta) if meta.size == size => Ok(()),
            Ok(meta) => Err(cut_off(meta.size, size)),
            Err(StoreError::NotFound { .. }) => Err(missing()),
            Err(error) => Err(Unreadable::Failed(self.failed("read", path, &error))),
        }
    }

    /// Reads a byte range of an object whose expected size is `size` bytes.
    pub(super) async fn range(
        &self,
        path: &Path,
        size: u64,
        range: Range<u64>,
    ) -> Result<Bytes, Unreadable> {
        let parts = self
            .ranges(path, size, std::slice::from_ref(&range))
            .await?;
        // The method `ranges` returns one part for each range, so there is exactly one part.
        Ok(parts.into_iter().next().unwrap_or_default())
    }

    /// Reads several byte ranges of an object whose expected size is `size` bytes. Returns one part
    /// for each range.
    pub(super) async fn ranges(
        &self,
        path: &Path,
        size: u64,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Bytes>, Unreadable> {
        let start = self.clock.elapsed();
        let parts = match self.store.get_ranges(path, ranges).await {
            Ok(parts) => parts,
            Err(StoreError::NotFound { .. }) => return Err(missing()),
            Err(error) => {
                self.check_size(path, size).await?;
                return Err(Unreadable::Failed(self.failed("read", path, &error)));
            }
        };
        let read: u64 = parts.iter().map(|part| part.len() as u64).sum();
        self.meter
            .read(read, self.clock.elapsed().saturating_sub(start));
        let wanted: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        if parts.len() != ranges.len() || read != wanted {
            return Err(cut_off(read, wanted));
        }
        Ok(parts)
    }

    /// Writes a whole object, and measures the write bandwidth by the size of the object and the
    /// duration.
    pub(super) async fn put_large(&self, path: &Path, parts: Vec<Bytes>) -> Result<(), CacheError> {
        let payload = PutPayload::from_iter(parts);
        let bytes = payload.content_length() as u64;
        let start = self.clock.elapsed();
        self.put(path, payload, PutMode::Overwrite).await?;
        self.meter
            .wrote(bytes, self.clock.elapsed().saturating_sub(start));
        Ok(())
    }

    /// Writes a whole object and returns its version.
    pub(super) async fn put(
        &self,
        path: &Path,
        payload: PutPayload,
        mode: PutMode,
    ) -> Result<UpdateVersion, CacheError> {
        let put = self.try_put(path, payload, mode).await;
        put.map_err(|error| self.failed("write", path, &error))
    }

    /// As [`put`](Self::put), with the error of the store, which says whether another process wrote
    /// first.
    pub(super) async fn try_put(
        &self,
        path: &Path,
        payload: PutPayload,
        mode: PutMode,
    ) -> Result<UpdateVersion, StoreError> {
        let options = PutOptions::from(mode);
        let put = self.store.put_opts(path, payload, options).await;
        put.map(UpdateVersion::from)
    }

    /// Returns the error of an operation on the object at `path`.
    pub(super) fn failed(
        &self,
        action: &'static str,
        path: &Path,
        error: &StoreError,
    ) -> CacheError {
        let object = self
            .root
            .as_ref()
            .map_or_else(|| path.to_string(), |root| format!("{root}/{path}"));
        let cause = cause_of(&object, error);
        CacheError::Store {
            action,
            object,
            cause,
        }
    }

    /// Deletes an object. A missing object is not an error.
    pub(super) async fn delete(&self, path: &Path) -> Result<(), CacheError> {
        match self.store.delete(path).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("remove", path, &error)),
        }
    }

    /// Returns the keys that have a folder in the store, in ascending order.
    pub(super) async fn keys(&self) -> Result<Vec<CacheKey>, CacheError> {
        let listed = self.store.list_with_delimiter(Some(&self.prefix)).await;
        let listed = listed.map_err(|error| self.failed("list", &self.prefix, &error))?;
        let names = listed.common_prefixes.iter().filter_map(Path::filename);
        // Folders whose names are not keys do not belong to the cache.
        let mut keys: Vec<CacheKey> = names.filter_map(|name| name.parse().ok()).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// Returns the total size of all objects in the store, in bytes.
    pub(super) async fn total_bytes(&self) -> Result<u64, CacheError> {
        let listed = self.store.list(Some(&self.prefix));
        listed
            .map(|meta| match meta {
                Ok(meta) => Ok(meta.size),
                // Another process removed the object during the listing.
                Err(StoreError::NotFound { .. }) => Ok(0),
                Err(error) => Err(self.failed("list", &self.prefix, &error)),
            })
            .try_fold(
                0u64,
                |sum, size| async move { Ok(sum.saturating_add(size)) },
            )
            .await
    }

    /// Returns the time of a key's last use, in milliseconds since 1970; 0 when unknown.
    pub(super) async fn last_used(&self, key: &CacheKey) -> u64 {
        let stamp = self.read_small(&self.used(key), SMALL).await;
        let stamp = stamp.ok().flatten();
        let stamp = stamp.and_then(|(bytes, _)| std::str::from_utf8(&bytes).ok()?.parse().ok());
        // A time in the future, from another machine's clock, counts as now.
        stamp.unwrap_or(0).min(self.clock.unix_ms())
    }

    /// Records that `key` is used now. If recording fails, `key` only looks unused for longer than
    /// it was.
    pub(super) async fn touch(&self, key: &CacheKey) {
        let path = self.used(key);
        let stamp = PutPayload::from(self.clock.unix_ms().to_string());
        if let Err(error) = self.put(&path, stamp, PutMode::Overwrite).await {
            log::debug!("{error}");
        }
    }

    pub(super) async fn load_history(&self) -> History {
        let found = self.read_small(&self.bandwidth(), SMALL).await;
        let found = found.ok().flatten();
        let found: Option<History> =
            found.and_then(|(bytes, _)| serde_json::from_slice(&bytes).ok());
        found.unwrap_or_default().unless_old(self.clock.unix_ms())
    }
}

/// Removes the unfinished files in `folder`.
pub(super) fn remove_temporary_files(folder: &FsPath) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        if is_temporary(FsPath::new(&entry.file_name())) {
            // Errors are ignored: the file may already be gone, or belong to another user.
            std::fs::remove_file(entry.path()).ok();
        }
    }
}

/// True when `name` has the form `NAME#1`, which `object_store` gives to unfinished files.
fn is_temporary(name: &FsPath) -> bool {
    let number = name.to_str().and_then(|name| name.rsplit_once('#'));
    number.is_some_and(|(_, n)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn missing() -> Unreadable {
    Unreadable::Damaged("it is missing".to_owned())
}

fn cut_off(found: u64, expected: u64) -> Unreadable {
    Unreadable::Damaged(format!("expected {expected} bytes, found {found}"))
}
