//! Verification of a cache store: reads all blocks and indexes, and checks their checksums.

use std::collections::HashSet;

use super::error::CacheError;
use super::files::Unreadable;
use super::key::{CacheKey, checksum_of};
use super::manifest::{EntryManifest, SegmentEntry};
use super::shard::ShardId;
use super::store::CacheStore;

/// Number of blocks that are read at a time.
const VERIFY_BLOCKS: usize = 16;

/// A stored object that is damaged or missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Key of the entry.
    pub key: CacheKey,
    /// Name of the segment; `None` when the manifest is damaged.
    pub segment: Option<String>,
    /// Description of the damage.
    pub cause: String,
}

/// The result of verifying a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Number of entries checked.
    pub entries: u64,
    /// Number of segments checked.
    pub segments: u64,
    /// Total size in bytes of the sound segments.
    pub bytes: u64,
    /// The damage found.
    pub damaged: Vec<Damage>,
    /// Number of damaged segments and manifests that were removed.
    pub removed: u64,
}

impl CacheStore {
    /// Reads the segments of all entries and checks their checksums. With `repair`, damaged
    /// segments and manifests are removed, so that their rows are computed again.
    ///
    /// # Errors
    /// The store cannot be read. With `repair`, also: the store cannot be written, or another
    /// process is writing an entry that needs repair.
    pub async fn verify(&self, repair: bool) -> Result<Verified, CacheError> {
        let mut verified = Verified::default();
        for key in self.shared.files.keys().await? {
            let mut is_entry = false;
            for shard in self.shared.files.shards(&key).await? {
                is_entry |= self.verify_shard(&shard, repair, &mut verified).await?;
            }
            verified.entries += u64::from(is_entry);
        }
        Ok(verified)
    }

    /// Checks a shard. Returns false if it has no manifest.
    async fn verify_shard(
        &self,
        shard: &ShardId,
        repair: bool,
        verified: &mut Verified,
    ) -> Result<bool, CacheError> {
        let loaded = EntryManifest::load(&self.shared.files, shard).await?;
        if loaded.version.is_none() {
            return Ok(false);
        }
        let damage = |segment: Option<&SegmentEntry>, cause| Damage {
            key: shard.key,
            segment: segment.map(|segment| segment.name.clone()),
            cause,
        };
        if let Some(cause) = loaded.damage {
            verified.damaged.push(damage(None, cause));
            if repair {
                self.exclusive(shard).await?.remove().await?;
                verified.removed += 1;
            }
            return Ok(true);
        }
        let mut names = HashSet::new();
        let mut damaged = Vec::new();
        for segment in &loaded.manifest.segments {
            verified.segments += 1;
            match self.verify_segment(shard, segment).await {
                Ok(bytes) => verified.bytes += bytes,
                Err(Unreadable::Failed(error)) => return Err(error),
                Err(Unreadable::Damaged(cause)) => {
                    damaged.push(damage(Some(segment), cause));
                    names.insert(segment.name.clone());
                }
            }
        }
        if !damaged.is_empty() {
            // A segment that was evicted during the verification is not damaged.
            let now = EntryManifest::load(&self.shared.files, shard)
                .await?
                .manifest;
            names.retain(|name| now.segments.iter().any(|segment| segment.name == *name));
            damaged.retain(|d| d.segment.as_ref().is_some_and(|name| names.contains(name)));
            verified.damaged.extend(damaged);
        }
        if repair && !names.is_empty() {
            let mut exclusive = self.exclusive(shard).await?;
            verified.removed += exclusive.drop_segments(&names).await? as u64;
            exclusive.release().await;
        }
        Ok(true)
    }

    /// Reads and checks a segment, and returns its size in bytes. The error says either how the
    /// segment is damaged, or that the store failed.
    async fn verify_segment(
        &self,
        shard: &ShardId,
        segment: &SegmentEntry,
    ) -> Result<u64, Unreadable> {
        let files = &self.shared.files;
        let path = files.segment(shard, &segment.name);
        let layout = segment.read_layout(files, shard).await?;
        for (group, blocks) in layout.blocks.chunks(VERIFY_BLOCKS).enumerate() {
            let ranges: Vec<_> = blocks
                .iter()
                .map(|block| block.start..block.start + u64::from(block.bytes))
                .collect();
            let parts = files.ranges(&path, segment.bytes, &ranges).await?;
            for (number, (block, bytes)) in blocks.iter().zip(parts).enumerate() {
                if checksum_of(&bytes) != block.checksum {
                    let number = group * VERIFY_BLOCKS + number;
                    return Err(Unreadable::Damaged(format!(
                        "the checksum of block {number} does not match"
                    )));
                }
            }
        }
        Ok(segment.bytes)
    }
}
