//! The manifest of a shard of a cache entry: the list of its segments, with facts about each segment
//! for display and eviction.

use object_store::UpdateVersion;
use serde::{Deserialize, Serialize};

use super::compression::Compression;
use super::error::CacheError;
use super::files::{Files, Unreadable};
use super::key::CacheKey;
use super::key_text::is_hex;
use super::layout::{SegmentLayout, decode_checked};
use super::shard::ShardId;

/// Version of the layout of manifests and segments; manifests of other versions are not read.
const VERSION: u32 = 1;

/// Maximum size of a manifest in bytes, enough for some hundred thousand segments. A larger
/// manifest counts as damaged.
const MAX_BYTES: u64 = 64 << 20;

/// Maximum size of a segment's index in bytes. A manifest that states a larger index counts as
/// damaged.
const MAX_INDEX_BYTES: u64 = 64 << 20;

/// The manifest of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EntryManifest {
    version: u32,
    key: String,
    /// Text of the prefix (the sub-plan whose rows are stored), for display.
    pub(super) text: String,
    /// Checksum of the schema's Arrow IPC message.
    pub(super) schema: String,
    /// Time to compute one row without the cache, in picoseconds.
    pub(super) compute_ps_per_row: u64,
    pub(super) segments: Vec<SegmentEntry>,
}

/// The description of a segment in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SegmentEntry {
    /// Checksum of the segment's index, which contains the checksums of its blocks.
    pub(super) name: String,
    /// Size of the segment in bytes, including its index.
    pub(super) bytes: u64,
    /// Size in bytes of the index, which is at the end of the segment.
    pub(super) index_bytes: u64,
    /// Number of rows stored in the segment.
    pub(super) rows: u64,
    /// Number of rows that the prefix's filter dropped.
    pub(super) dropped: u64,
    /// Size that the stored rows have in memory once decoded, in bytes.
    pub(super) row_bytes: u64,
    pub(super) compression: Compression,
    /// Time that computing the rows of the segment took, in picoseconds. Reading the rows saves
    /// this time.
    pub(super) saved_ps: u64,
    /// Time when the segment was written, in milliseconds since 1970.
    pub(super) written_ms: u64,
    /// Description of the writing process, for display.
    pub(super) writer: String,
}

/// A manifest as loaded from the store.
#[derive(Debug)]
pub(super) struct Loaded {
    /// The manifest; empty when none is stored, or when the stored one is damaged.
    pub(super) manifest: EntryManifest,
    /// Version of the stored manifest, even of a damaged one; `None` when no manifest is stored.
    pub(super) version: Option<UpdateVersion>,
    /// Description of the damage of the stored manifest; `None` when the manifest is sound or
    /// missing.
    pub(super) damage: Option<String>,
}

impl EntryManifest {
    pub(super) fn empty(key: &CacheKey) -> Self {
        Self {
            version: VERSION,
            key: key.to_string(),
            text: String::new(),
            schema: String::new(),
            compute_ps_per_row: 0,
            segments: Vec::new(),
        }
    }

    /// Loads the manifest of `shard`. A damaged manifest is logged, and counts as empty.
    pub(super) async fn load(files: &Files, shard: &ShardId) -> Result<Loaded, CacheError> {
        let (path, key) = (files.manifest(shard), &shard.key);
        let (found, version, damage) = match files.read_small(&path, MAX_BYTES).await {
            Ok(None) => (None, None, None),
            Ok(Some((bytes, version))) => match Self::parse(&bytes, key) {
                Ok(manifest) => (Some(manifest), Some(version), None),
                Err(cause) => (None, Some(version), Some(cause)),
            },
            Err(Unreadable::Damaged(cause)) => {
                // The version is needed to replace the damaged manifest.
                let meta = files.store.get_opts(&path, Default::default()).await;
                let version = meta.ok().map(|found| UpdateVersion {
                    e_tag: found.meta.e_tag,
                    version: found.meta.version,
                });
                (None, version, Some(cause))
            }
            Err(Unreadable::Failed(error)) => return Err(error),
        };
        if let Some(cause) = &damage {
            log::warn!(
                "the cache manifest '{path}' is damaged ({cause}): its rows are computed again"
            );
        }
        Ok(Loaded {
            manifest: found.unwrap_or_else(|| Self::empty(key)),
            version,
            damage,
        })
    }

    fn parse(bytes: &[u8], key: &CacheKey) -> Result<Self, String> {
        let mut manifest: Self = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        if manifest.version != VERSION {
            return Err(format!(
                "it has version {}, but this build reads version {VERSION}",
                manifest.version
            ));
        }
        if manifest.key != key.to_string() {
            return Err("it belongs to another key".to_owned());
        }
        let sound = |segment: &SegmentEntry| {
            is_hex(&segment.name, 32)
                && segment.index_bytes <= segment.bytes.min(MAX_INDEX_BYTES)
                // These bounds keep sums over all segments from overflowing.
                && segment.bytes < 1 << 40
                && segment.row_bytes < 1 << 40
                && segment.rows.max(segment.dropped) < 1 << 40
        };
        if !manifest.segments.iter().all(sound) {
            return Err(
                "the name of a segment is malformed, or its sizes are inconsistent".to_owned(),
            );
        }
        let mut names = std::collections::HashSet::new();
        let unique: Vec<bool> = manifest
            .segments
            .iter()
            .map(|s| names.insert(s.name.clone()))
            .collect();
        let mut unique = unique.into_iter();
        manifest.segments.retain(|_| unique.next().unwrap_or(false));
        Ok(manifest)
    }

    pub(super) fn to_json(&self) -> Result<Vec<u8>, CacheError> {
        serde_json::to_vec(self).map_err(|e| CacheError::Invariant(e.to_string()))
    }
}

impl SegmentEntry {
    /// Reads and checks the index of the segment.
    pub(super) async fn read_layout(
        &self,
        files: &Files,
        shard: &ShardId,
    ) -> Result<SegmentLayout, Unreadable> {
        let path = files.segment(shard, &self.name);
        // The manifest may state any size. After this check, no allocation exceeds the size of the
        // object.
        files.check_size(&path, self.bytes).await?;
        let data = self.bytes - self.index_bytes;
        let index = files.range(&path, self.bytes, data..self.bytes).await?;
        decode_checked(&index, data, &self.name).map_err(Unreadable::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(key: &CacheKey) -> EntryManifest {
        let mut manifest = EntryManifest::empty(key);
        manifest.segments.push(SegmentEntry {
            name: "0".repeat(32),
            bytes: 100,
            index_bytes: 10,
            rows: 1,
            dropped: 0,
            row_bytes: 90,
            compression: Compression::Lz4,
            saved_ps: 5,
            written_ms: 7,
            writer: "a test".to_owned(),
        });
        manifest
    }

    #[test]
    fn a_manifest_is_read_as_it_is_written() {
        let key = CacheKey::new([7; 32]);
        let manifest = example(&key);
        let bytes = manifest.to_json().unwrap();
        assert_eq!(EntryManifest::parse(&bytes, &key), Ok(manifest.clone()));
        assert!(EntryManifest::parse(&bytes, &CacheKey::new([8; 32])).is_err());
        let mut twice = manifest.clone();
        twice.segments.push(manifest.segments[0].clone());
        assert_eq!(
            EntryManifest::parse(&twice.to_json().unwrap(), &key),
            Ok(manifest)
        );
    }

    #[test]
    fn hostile_manifests_are_refused() {
        let key = CacheKey::new([7; 32]);
        let changes: [fn(&mut EntryManifest); 6] = [
            |m| m.version = 2,
            |m| m.segments[0].name = "../../../../etc/passwd".to_owned(),
            |m| m.segments[0].name = "A".repeat(32),
            |m| m.segments[0].index_bytes = 101,
            |m| m.segments[0].bytes = u64::MAX,
            |m| m.segments[0].rows = u64::MAX,
        ];
        for change in changes {
            let mut manifest = example(&key);
            change(&mut manifest);
            assert!(EntryManifest::parse(&manifest.to_json().unwrap(), &key).is_err());
        }
        let bytes = example(&key).to_json().unwrap();
        for length in 0..bytes.len() {
            assert!(EntryManifest::parse(&bytes[..length], &key).is_err());
        }
    }
}
