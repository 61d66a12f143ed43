//! A key that only this process changes: its manifest, and replacing it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use object_store::{Error as StoreError, PutMode, PutPayload, UpdateVersion};

use super::error::CacheError;
use super::files::Files;
use super::guard::Guard;
use super::key::CacheKey;
use super::manifest::Manifest;

/// The right to change a key, and its manifest.
#[derive(Debug)]
pub(super) struct Exclusive {
    files: Arc<Files>,
    key: CacheKey,
    guard: Guard,
    version: Option<UpdateVersion>,
    pub(super) manifest: Manifest,
}

impl Exclusive {
    /// Takes the right to change a key; `None` while another has it.
    pub(super) async fn acquire(
        files: &Arc<Files>,
        key: &CacheKey,
        term: Duration,
    ) -> Result<Option<Self>, CacheError> {
        let Some(guard) = Guard::acquire(files, key, term).await? else {
            return Ok(None);
        };
        // Read under the guard: whoever had it before may have changed it.
        let loaded = match Manifest::load(files, key).await {
            Ok(loaded) => loaded,
            Err(error) => {
                guard.release(files, key).await;
                return Err(error);
            }
        };
        Ok(Some(Self {
            files: Arc::clone(files),
            key: *key,
            guard,
            version: loaded.version,
            manifest: loaded.manifest,
        }))
    }

    /// Makes sure that nobody took over.
    pub(super) async fn confirm(&mut self) -> Result<(), CacheError> {
        self.guard.confirm(&self.files, &self.key).await
    }

    /// Replaces the stored manifest by `manifest`, in one step.
    pub(super) async fn commit(&mut self, manifest: Manifest) -> Result<(), CacheError> {
        self.confirm().await?;
        let mode = match (&self.files.directory, self.version.clone()) {
            (Some(_), _) => PutMode::Overwrite,
            // One more check that nobody took over: the lease may have run out since.
            (None, Some(version)) => PutMode::Update(version),
            (None, None) => PutMode::Create,
        };
        let bytes = PutPayload::from(manifest.to_json()?);
        let path = self.files.manifest(&self.key);
        self.version = Some(match self.files.put(&path, bytes, mode).await {
            Ok(version) => version,
            Err(CacheError::Store {
                source: StoreError::Precondition { .. } | StoreError::AlreadyExists { .. },
                ..
            }) => return Err(CacheError::LeaseLost { key: self.key }),
            Err(error) => return Err(error),
        });
        self.manifest = manifest;
        Ok(())
    }

    /// Takes segments out of the manifest and removes them. How many there were.
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
                .delete(&self.files.segment(&self.key, name))
                .await?;
        }
        Ok(dropped)
    }

    /// Removes what a process that died while it wrote left behind.
    pub(super) async fn remove_leftovers(&self) -> Result<(), CacheError> {
        self.files.remove_temporary(&self.key);
        let known: HashSet<&str> = self
            .manifest
            .segments
            .iter()
            .map(|s| s.name.as_str())
            .collect();
        for name in self.files.segments(&self.key).await? {
            if !known.contains(name.as_str()) {
                self.files
                    .delete(&self.files.segment(&self.key, &name))
                    .await?;
            }
        }
        Ok(())
    }

    /// Removes the key: its manifest first, so that nobody finds half of it.
    pub(super) async fn remove(mut self) -> Result<(), CacheError> {
        self.confirm().await?;
        self.files.delete(&self.files.manifest(&self.key)).await?;
        self.manifest = Manifest::empty(&self.key);
        self.remove_leftovers().await?;
        self.files.delete(&self.files.used(&self.key)).await?;
        self.release().await;
        Ok(())
    }

    /// Lets others change the key.
    pub(super) async fn release(self) {
        self.guard.release(&self.files, &self.key).await;
    }
}
