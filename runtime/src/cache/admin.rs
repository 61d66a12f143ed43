//! What people ask of a store: what is in it, what it saves, whether it is sound.

use std::collections::HashSet;

use super::compression::Compression;
use super::error::CacheError;
use super::exclusive::Exclusive;
use super::files::Unreadable;
use super::key::{CacheKey, checksum_of, is_hex};
use super::manifest::{Manifest, SegmentEntry};
use super::quota::benefit;
use super::store::CacheStore;

/// Blocks that verifying reads at a time.
const VERIFY_BLOCKS: usize = 16;

/// An entry, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The key.
    pub key: CacheKey,
    /// The prefix.
    pub text: String,
    /// Rows stored.
    pub rows: u64,
    /// Rows that the prefix's filter dropped.
    pub dropped: u64,
    /// Bytes of the segments in the store.
    pub bytes: u64,
    /// Bytes of the rows in memory.
    pub row_bytes: u64,
    /// What computing a row takes, in picoseconds.
    pub compute_ps_per_row: u64,
    /// What computing all rows took, in picoseconds: what reading them saves.
    pub saved_ps: u64,
    /// When it was last used, in milliseconds since 1970; 0 where nobody knows.
    pub last_used_ms: u64,
    /// Picoseconds saved per byte, halved for every day without use: what has least goes first.
    pub benefit: f64,
    /// What is wrong with the manifest, where it cannot be read.
    pub damage: Option<String>,
    /// The segments, in the order in which they were written.
    pub segments: Vec<SegmentSummary>,
}

/// A segment, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentSummary {
    /// The object's name, without its ending.
    pub name: String,
    /// Rows stored.
    pub rows: u64,
    /// Bytes in the store.
    pub bytes: u64,
    /// How it is compressed.
    pub compression: Compression,
    /// When it was written, in milliseconds since 1970.
    pub written_ms: u64,
    /// Who wrote it.
    pub writer: String,
}

/// Something stored that is damaged or missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The entry.
    pub key: CacheKey,
    /// The segment; `None`: the manifest.
    pub segment: Option<String>,
    /// What is wrong.
    pub cause: String,
}

/// What verifying found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Entries.
    pub entries: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// What is damaged.
    pub damaged: Vec<Damage>,
    /// How many of the damaged segments and manifests were removed.
    pub removed: u64,
}

impl CacheStore {
    /// All entries, by descending benefit.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn list(&self) -> Result<Vec<Summary>, CacheError> {
        let mut found = Vec::new();
        for key in self.shared.files.keys().await? {
            found.extend(self.explain(&key).await?);
        }
        found.sort_by(|a, b| {
            b.benefit
                .total_cmp(&a.benefit)
                .then_with(|| a.key.cmp(&b.key))
        });
        Ok(found)
    }

    /// What is stored for a key; `None` where nothing is.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn explain(&self, key: &CacheKey) -> Result<Option<Summary>, CacheError> {
        let files = &self.shared.files;
        let loaded = Manifest::load(files, key).await?;
        if loaded.version.is_none() {
            return Ok(None);
        }
        let last_used_ms = files.last_used(key).await;
        let Manifest {
            text,
            compute_ps_per_row,
            segments,
            ..
        } = loaded.manifest;
        // Claims of a manifest may be of any size.
        let sum = |of: fn(&SegmentEntry) -> u64| {
            segments
                .iter()
                .fold(0u64, |sum, s| sum.saturating_add(of(s)))
        };
        let (bytes, saved_ps) = (sum(|s| s.bytes), sum(|s| s.saved_ps));
        let idle = files.clock.unix_ms().saturating_sub(last_used_ms);
        Ok(Some(Summary {
            key: *key,
            text,
            rows: sum(|s| s.rows),
            dropped: sum(|s| s.dropped),
            bytes,
            row_bytes: sum(|s| s.row_bytes),
            compute_ps_per_row,
            saved_ps,
            last_used_ms,
            benefit: benefit(saved_ps, bytes, idle),
            damage: loaded.damage,
            segments: segments.into_iter().map(SegmentSummary::from).collect(),
        }))
    }

    /// The key that a person means by its first digits.
    ///
    /// # Errors
    /// No entry has such a key, or several have.
    pub async fn resolve(&self, text: &str) -> Result<CacheKey, CacheError> {
        if text.is_empty() || text.len() > 64 || !is_hex(text, text.len()) {
            return Err(CacheError::Key {
                text: text.chars().take(80).collect(),
            });
        }
        let mut found = Vec::new();
        for key in self.shared.files.keys().await? {
            if key.to_string().starts_with(text) && self.explain(&key).await?.is_some() {
                found.push(key);
            }
        }
        let text = text.to_owned();
        match found.as_slice() {
            [] => Err(CacheError::Unknown { text }),
            [key] => Ok(*key),
            several => Err(CacheError::Ambiguous {
                text,
                found: several.len(),
            }),
        }
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// Another process writes it, or the store fails.
    pub async fn remove(&self, key: &CacheKey) -> Result<(), CacheError> {
        let lease = self.shared.options.lease;
        match Exclusive::acquire(&self.shared.files, key, lease).await? {
            Some(exclusive) => exclusive.remove().await,
            None => Err(CacheError::Busy { key: *key }),
        }
    }

    /// Removes all entries; how many there were.
    ///
    /// # Errors
    /// Another process writes one of them, or the store fails.
    pub async fn remove_all(&self) -> Result<u64, CacheError> {
        let mut removed = 0;
        for key in self.shared.files.keys().await? {
            self.remove(&key).await?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Reads everything and checks it against its checksums. With `repair`, what is damaged is
    /// removed, so that it is computed again.
    ///
    /// # Errors
    /// The store cannot be read or, with `repair`, written; or another process writes what is to be
    /// repaired.
    pub async fn verify(&self, repair: bool) -> Result<Verified, CacheError> {
        let mut verified = Verified::default();
        for key in self.shared.files.keys().await? {
            self.verify_entry(&key, repair, &mut verified).await?;
        }
        Ok(verified)
    }

    async fn verify_entry(
        &self,
        key: &CacheKey,
        repair: bool,
        verified: &mut Verified,
    ) -> Result<(), CacheError> {
        let loaded = Manifest::load(&self.shared.files, key).await?;
        if loaded.version.is_none() {
            return Ok(());
        }
        verified.entries += 1;
        let damage = |segment: Option<&SegmentEntry>, cause| Damage {
            key: *key,
            segment: segment.map(|segment| segment.name.clone()),
            cause,
        };
        if let Some(cause) = loaded.damage {
            verified.damaged.push(damage(None, cause));
            if repair {
                self.remove(key).await?;
                verified.removed += 1;
            }
            return Ok(());
        }
        let mut names = HashSet::new();
        let mut damaged = Vec::new();
        for segment in &loaded.manifest.segments {
            verified.segments += 1;
            match self.verify_segment(key, segment).await {
                Ok(bytes) => verified.bytes += bytes,
                Err(Unreadable::Failed(error)) => return Err(error),
                Err(Unreadable::Damaged(cause)) => {
                    damaged.push(damage(Some(segment), cause));
                    names.insert(segment.name.clone());
                }
            }
        }
        if !damaged.is_empty() {
            // What was evicted meanwhile is not damaged.
            let now = Manifest::load(&self.shared.files, key).await?.manifest;
            names.retain(|name| now.segments.iter().any(|segment| segment.name == *name));
            damaged.retain(|d| d.segment.as_ref().is_some_and(|name| names.contains(name)));
            verified.damaged.extend(damaged);
        }
        if repair && !names.is_empty() {
            let lease = self.shared.options.lease;
            let acquired = Exclusive::acquire(&self.shared.files, key, lease).await?;
            let mut exclusive = acquired.ok_or(CacheError::Busy { key: *key })?;
            verified.removed += exclusive.drop_segments(&names).await? as u64;
            exclusive.release().await;
        }
        Ok(())
    }

    /// Bytes of a segment that is sound.
    async fn verify_segment(
        &self,
        key: &CacheKey,
        segment: &SegmentEntry,
    ) -> Result<u64, Unreadable> {
        let files = &self.shared.files;
        let path = files.segment(key, &segment.name);
        let layout = segment.read_layout(files, key).await?;
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

impl From<SegmentEntry> for SegmentSummary {
    fn from(segment: SegmentEntry) -> Self {
        Self {
            name: segment.name,
            rows: segment.rows,
            bytes: segment.bytes,
            compression: segment.compression,
            written_ms: segment.written_ms,
            writer: segment.writer,
        }
    }
}
