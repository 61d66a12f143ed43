//! What people ask of a store: what is in it, and what it saves.

use super::compression::Compression;
use super::error::CacheError;
use super::exclusive::Exclusive;
use super::key::{CacheKey, is_hex};
use super::manifest::{Manifest, SegmentEntry};
use super::quota::benefit;
use super::store::CacheStore;

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
