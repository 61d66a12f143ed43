//! Administration of a cache store: lists its entries with their sizes and benefits, and removes
//! entries.

use super::bandwidth::MEASURED_BYTES;
use super::compression::Compression;
use super::error::CacheError;
use super::exclusive::Exclusive;
use super::key::CacheKey;
use super::key_text::is_hex;
use super::manifest::{EntryManifest, SegmentEntry};
use super::quota::benefit;
use super::shard::ShardId;
use super::store::CacheStore;

/// Summary of a cache entry, for display.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Key of the entry.
    pub key: CacheKey,
    /// Text of the sub-plan whose rows the entry stores.
    pub text: String,
    /// Number of rows that are stored, without dropped rows.
    pub rows: u64,
    /// Number of rows that are recorded as dropped by the filter of the sub-plan.
    pub dropped: u64,
    /// Total size of the entry's segments as they are stored, in bytes.
    pub bytes: u64,
    /// Size that the stored rows have in memory once decoded, in bytes.
    pub row_bytes: u64,
    /// Time to compute one row without the cache, in picoseconds.
    pub compute_ps_per_row: u64,
    /// Time that computing all rows of the entry took, in picoseconds. Reading the rows from the
    /// cache saves this time.
    pub saved_ps: u64,
    /// Time of the entry's last use, in milliseconds since 1970; 0 when unknown.
    pub last_used_ms: u64,
    /// `saved_ps` divided by `bytes`, halved for every day since the last use. Rows of low benefit
    /// are evicted first.
    pub benefit: f64,
    /// Reason for which a manifest of the entry cannot be read; `None` when all are sound.
    pub damage: Option<String>,
    /// The segments of the entry, in the order in which they were written.
    pub segments: Vec<SegmentSummary>,
}

/// Summary of a segment, for display.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentSummary {
    /// Name of the segment's object, without its extension.
    pub name: String,
    /// Number of the entry's shard that has the segment. Each of several writers fills a shard.
    pub shard: u32,
    /// Number of rows that are stored, without dropped rows.
    pub rows: u64,
    /// Size of the segment in the store, in bytes.
    pub bytes: u64,
    /// Compression of the segment.
    pub compression: Compression,
    /// Time when the segment was written, in milliseconds since 1970.
    pub written_ms: u64,
    /// Description of the process that wrote the segment.
    pub writer: String,
}

impl CacheStore {
    /// Returns the summaries of all entries, by descending benefit.
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

    /// Returns the summary of an entry; `None` when nothing is stored for its key.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn explain(&self, key: &CacheKey) -> Result<Option<Summary>, CacheError> {
        let files = &self.shared.files;
        let (mut is_stored, mut damage) = (false, None);
        let (mut text, mut compute_ps_per_row) = (String::new(), 0);
        let mut segments: Vec<(ShardId, SegmentEntry)> = Vec::new();
        for shard in files.shards(key).await? {
            let loaded = EntryManifest::load(files, &shard).await?;
            is_stored |= loaded.version.is_some();
            damage = damage.or(loaded.damage);
            if text.is_empty() {
                text = loaded.manifest.text;
                compute_ps_per_row = loaded.manifest.compute_ps_per_row;
            }
            let of_shard = loaded.manifest.segments.into_iter();
            segments.extend(of_shard.map(|segment| (shard, segment)));
        }
        if !is_stored {
            return Ok(None);
        }
        segments.sort_by_key(|(_, segment)| segment.written_ms);
        let last_used_ms = files.last_used(key).await;
        // Sums saturate, because a manifest may state numbers whose sum overflows.
        let sum = |of: fn(&SegmentEntry) -> u64| {
            segments
                .iter()
                .fold(0u64, |sum, (_, s)| sum.saturating_add(of(s)))
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
            damage,
            segments: segments.into_iter().map(summary).collect(),
        }))
    }

    /// Returns the key of the only entry whose key begins with the hexadecimal digits `text`.
    ///
    /// # Errors
    /// `text` is not hexadecimal, no key begins with `text`, or several keys do.
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

    /// Measures the read bandwidth of the store again, by reading a part of the largest segment in
    /// `entries`. A plan that does not read the store measures nothing, so an outdated measurement
    /// could otherwise persist. If reading fails, the old measurement stays.
    pub async fn measure_again(&self, entries: &[Summary]) {
        let segments = entries
            .iter()
            .flat_map(|entry| entry.segments.iter().map(|segment| (entry.key, segment)));
        let Some((key, segment)) = segments.max_by_key(|(_, segment)| segment.bytes) else {
            return;
        };
        let files = &self.shared.files;
        let shard = ShardId {
            key,
            number: segment.shard,
        };
        let path = files.segment(&shard, &segment.name);
        let part = 0..segment.bytes.min(MEASURED_BYTES);
        match files.range(&path, segment.bytes, part).await {
            Ok(_) => files.meter.read_again(),
            Err(error) => log::debug!("the store was not measured again: {error:?}"),
        }
    }

    /// Removes the entry of `key`.
    ///
    /// # Errors
    /// Another process is writing the entry, or the store fails.
    pub async fn remove(&self, key: &CacheKey) -> Result<(), CacheError> {
        let mut shards = Vec::new();
        for shard in self.shared.files.shards(key).await? {
            match self.exclusive(&shard).await {
                Ok(exclusive) => shards.push(exclusive),
                Err(error) => {
                    for exclusive in shards {
                        exclusive.release().await;
                    }
                    return Err(error);
                }
            }
        }
        for exclusive in shards {
            exclusive.remove().await?;
        }
        Ok(())
    }

    /// Acquires the exclusive right to change a shard.
    pub(super) async fn exclusive(&self, shard: &ShardId) -> Result<Exclusive, CacheError> {
        let lease = self.shared.options.lease;
        let acquired = Exclusive::acquire(&self.shared.files, shard, lease).await?;
        acquired.ok_or(CacheError::Busy { key: shard.key })
    }

    /// Removes all entries of the store and returns the number of removed entries.
    ///
    /// # Errors
    /// Another process is writing one of the entries, or the store fails. Entries that were removed
    /// before the error stay removed.
    pub async fn remove_all(&self) -> Result<u64, CacheError> {
        let mut removed = 0;
        for key in self.shared.files.keys().await? {
            self.remove(&key).await?;
            removed += 1;
        }
        Ok(removed)
    }
}

fn summary((shard, segment): (ShardId, SegmentEntry)) -> SegmentSummary {
    SegmentSummary {
        name: segment.name,
        shard: shard.number,
        rows: segment.rows,
        bytes: segment.bytes,
        compression: segment.compression,
        written_ms: segment.written_ms,
        writer: segment.writer,
    }
}
