//! Shards: the parts of a cache entry that have writers of their own.
//!
//! Each shard has its own folder, manifest, segments and exclusive right. So several processes fill
//! an entry at once, and none waits for another one. A writer takes the first shard that is free, so
//! an entry has as many shards as it ever had writers at the same time. A reader reads all of them.

use std::fmt;

use futures::{TryStreamExt, future};
use object_store::path::Path;

use super::error::CacheError;
use super::files::{Files, remove_temporary_files};
use super::key::CacheKey;
use super::key_text::is_hex;

/// Maximum number of shards of an entry. Folders of higher numbers are ignored.
pub(super) const MAX_SHARDS: u32 = 1024;

/// Extension of the file names of segments.
const SEGMENT: &str = ".arrows";

/// File name of the lease of a shard.
const LEASE: &str = "lease.json";

/// Name of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ShardId {
    /// Key of the entry.
    pub(super) key: CacheKey,
    /// Number of the shard in the entry.
    pub(super) number: u32,
}

impl ShardId {
    /// Returns the shard of the first writer of an entry.
    pub(super) const fn first(key: CacheKey) -> Self {
        Self { key, number: 0 }
    }

    /// Iterates over all shards that the entry of `key` can have.
    pub(super) fn all(key: CacheKey) -> impl Iterator<Item = Self> {
        (0..MAX_SHARDS).map(move |number| Self { key, number })
    }
}

/// Formats the name of the shard's lock file.
impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => write!(f, "{}", self.key),
            number => write!(f, "{}-{number}", self.key),
        }
    }
}

impl Files {
    /// Returns the folder of a shard. That of the first shard also contains those of the others.
    fn folder(&self, shard: &ShardId) -> Path {
        let folder = self.key_folder(&shard.key);
        match shard.number {
            0 => folder,
            number => folder.join(number.to_string()),
        }
    }

    pub(super) fn manifest(&self, shard: &ShardId) -> Path {
        self.folder(shard).join("manifest.json")
    }

    pub(super) fn lease(&self, shard: &ShardId) -> Path {
        self.folder(shard).join(LEASE)
    }

    /// Returns the path of a segment. `name` must have been checked by
    /// [`is_hex`](super::key_text::is_hex).
    pub(super) fn segment(&self, shard: &ShardId, name: &str) -> Path {
        self.folder(shard).join(format!("{name}{SEGMENT}"))
    }

    /// Returns the shards of `key` that have a folder, and the first shard in any case.
    pub(super) async fn shards(&self, key: &CacheKey) -> Result<Vec<ShardId>, CacheError> {
        let folder = self.key_folder(key);
        let listed = self.store.list_with_delimiter(Some(&folder)).await;
        let listed = listed.map_err(|error| self.failed("list", &folder, &error))?;
        let names = listed.common_prefixes.iter().filter_map(Path::filename);
        let numbers = names.filter_map(|name| {
            let number = name.parse().ok().filter(|n| (1..MAX_SHARDS).contains(n))?;
            // Another spelling, such as `01`, is not the folder of a shard.
            (number.to_string() == name).then_some(number)
        });
        let mut numbers: Vec<u32> = std::iter::once(0).chain(numbers).collect();
        numbers.sort_unstable();
        let shards = numbers.into_iter();
        Ok(shards.map(|number| ShardId { key: *key, number }).collect())
    }

    /// Returns the names of all stored segments of `shard`, including those that its manifest does
    /// not list.
    pub(super) async fn segments(&self, shard: &ShardId) -> Result<Vec<String>, CacheError> {
        let folder = self.folder(shard);
        let listed = self.store.list(Some(&folder));
        listed
            .map_err(|error| self.failed("list", &folder, &error))
            .try_filter_map(|meta| {
                // The folder of the first shard contains the folders of the others.
                let mut parts = meta.location.prefix_match(&folder).into_iter().flatten();
                let (file, below) = (parts.next(), parts.next());
                let name = file.filter(|_| below.is_none()).and_then(|file| {
                    let name = file.as_ref().strip_suffix(SEGMENT)?;
                    is_hex(name, 32).then(|| name.to_owned())
                });
                async move { Ok(name) }
            })
            .try_collect()
            .await
    }

    /// Returns true if nothing is stored for `key` but small files about its use and its writers.
    pub(super) async fn is_unused(&self, key: &CacheKey) -> Result<bool, CacheError> {
        let folder = self.key_folder(key);
        let listed = self.store.list(Some(&folder));
        let used = self.used(key);
        let is_small = |path: &Path| *path == used || path.filename() == Some(LEASE);
        let mut others = listed.try_filter(|meta| future::ready(!is_small(&meta.location)));
        let other = others.try_next().await;
        let other = other.map_err(|error| self.failed("list", &folder, &error))?;
        Ok(other.is_none())
    }

    /// Removes the temporary files that a crashed writer of `shard` left behind.
    pub(super) fn remove_temporary(&self, shard: &ShardId) {
        if let Some(directory) = &self.directory {
            remove_temporary_files(&directory.join(self.folder(shard).as_ref()));
            remove_temporary_files(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;
    use object_store::{ObjectStoreExt, PutPayload};

    use super::super::bandwidth::Meter;
    use super::super::testing::ManualClock;
    use super::*;

    #[tokio::test]
    async fn each_shard_has_files_of_its_own() {
        let files = Files {
            store: Arc::new(InMemory::new()),
            root: None,
            prefix: Path::from("a"),
            directory: None,
            clock: Arc::new(ManualClock::default()),
            meter: Meter::default(),
        };
        let key = CacheKey::new([7; 32]);
        let shards: Vec<ShardId> = ShardId::all(key).take(3).collect();
        assert_eq!(files.shards(&key).await.unwrap(), shards[..1]);
        assert!(files.is_unused(&key).await.unwrap());
        let name = |number: u32| format!("{number:032x}");
        for shard in &shards {
            let path = files.segment(shard, &name(shard.number));
            files.store.put(&path, PutPayload::new()).await.unwrap();
        }
        // These folders are no shards.
        for other in ["01", "+2", "x", "99999"] {
            let path = files.key_folder(&key).join(other).join("f");
            files.store.put(&path, PutPayload::new()).await.unwrap();
        }
        assert_eq!(files.shards(&key).await.unwrap(), shards);
        assert!(!files.is_unused(&key).await.unwrap());
        for shard in &shards {
            let found = files.segments(shard).await.unwrap();
            assert_eq!(found, [name(shard.number)]);
        }
        assert_eq!(shards[2].to_string(), format!("{key}-2"));
    }
}
