//! The exclusive right to change a shard of a cache entry, held together with the shard's manifest.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use object_store::{Error as StoreError, PutMode, PutPayload, UpdateVersion};

use super::error::CacheError;
use super::files::Files;
use super::guard::Guard;
use super::manifest::EntryManifest;
use super::shard::ShardId;

/// The exclusive right to change a shard, and the shard's manifest.
#[derive(Debug)]
pub(super) struct Exclusive {
    files: Arc<Files>,
    pub(super) shard: ShardId,
    guard: Guard,
    version: Option<UpdateVersion>,
    pub(super) manifest: EntryManifest,
}

impl Exclusive {
    /// Acquires the exclusive right to change `shard`; `None` when another writer holds
    /// the right. `term` is the duration of a lease.
    pub(super) async fn acquire(
        files: &Arc<Files>,
        shard: &ShardId,
        term: Duration,
    ) -> Result<Option<Self>, CacheError> {
        let Some(guard) = Guard::acquire(files, shard, term).await? else {
            return Ok(None);
        };
        // The manifest is read only after the right is acquired, because the previous holder may
        // have changed the manifest.
        let loaded = match EntryManifest::load(files, shard).await {
            Ok(loaded) => loaded,
            Err(error) => {
                guard.release(files, shard).await;
                return Err(error);
            }
        };
        Ok(Some(Self {
            files: Arc::clone(files),
            shard: *shard,
            guard,
            version: loaded.version,
            manifest: loaded.manifest,
        }))
    }

    /// Checks that no other process has taken over the right to change the shard.
    pub(super) async fn confirm(&mut self) -> Result<(), CacheError> {
        self.guard.confirm(&self.files, &self.shard).await
    }

    /// Replaces the stored manifest by `manifest` atomically.
    pub(super) async fn commit(&mut self, manifest: EntryManifest) -> Result<(), CacheError> {
        self.confirm().await?;
        let mode = match (&self.files.directory, self.version.clone()) {
            (Some(_), _) => PutMode::Overwrite,
            // The store refuses the update if the lease of this process has expired and another
            // process has changed the manifest since.
            (None, Some(version)) => PutMode::Update(version),
            (None, None) => PutMode::Create,
        };
        let bytes = PutPayload::from(manifest.to_json()?);
        let path = self.files.manifest(&self.shard);
        self.version = Some(match self.files.try_put(&path, bytes, mode).await {
            Ok(version) => version,
            Err(StoreError::Precondition { .. } | StoreError::AlreadyExists { .. }) => {
                return Err(CacheError::LeaseLost {
                    key: self.shard.key,
                });
            }
            Err(error) => return Err(self.files.failed("write", &path, &error)),
        });
        self.manifest = manifest;
        Ok(())
    }

    /// Removes the segments `names` from the manifest and deletes their objects. Returns the number
    /// of these segments that the manifest listed.
    pub(super) async fn drop_segments(
        &mut self,
        names: &HashSet<String>,
    ) -> Result<usize, CacheError> {
        let mut manifest = self.manifest.clone();
        manifest
            .segments
            .retain(|segment| !names.contains(&segment.name));
        let dropped = self.manifest.segments.len() - manifest.segments.len();
        if dropped > 0 {
            self.commit(manifest).await?;
        }
        for name in names {
            self.files
                .delete(&self.files.segment(&self.shard, name))
                .await?;
        }
        Ok(dropped)
    }

    /// Deletes the leftovers of a process that died while writing: temporary files, and segments
    /// that the manifest does not list.
    pub(super) async fn remove_leftovers(&self) -> Result<(), CacheError> {
        self.files.remove_temporary(&self.shard);
        let known: HashSet<&str> = self
            .manifest
            .segments
            .iter()
            .map(|s| s.name.as_str())
            .collect();
        for name in self.files.segments(&self.shard).await? {
            if !known.contains(name.as_str()) {
                self.files
                    .delete(&self.files.segment(&self.shard, &name))
                    .await?;
            }
        }
        Ok(())
    }

    /// Removes the shard, and what is known of the use of an entry that has no other shard. The
    /// manifest is deleted before the segments, so that no process finds an incomplete shard.
    pub(super) async fn remove(mut self) -> Result<(), CacheError> {
        self.confirm().await?;
        self.files.delete(&self.files.manifest(&self.shard)).await?;
        let key = self.shard.key;
        self.manifest = EntryManifest::empty(&key);
        self.remove_leftovers().await?;
        if self.files.is_unused(&key).await? {
            self.files.delete(&self.files.used(&key)).await?;
        }
        self.release().await;
        Ok(())
    }

    /// Releases the right to change the shard.
    pub(super) async fn release(self) {
        self.guard.release(&self.files, &self.shard).await;
    }
}
