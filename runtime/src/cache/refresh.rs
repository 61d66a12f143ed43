//! Keeps the segments that an entry knows up to date with the store.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt;

use super::entry::Entry;
use super::error::CacheError;
use super::exclusive::Exclusive;
use super::files::Unreadable;
use super::known::{Known, KnownSegment};
use super::layout::SegmentLayout;
use super::manifest::{EntryManifest, SegmentEntry};
use super::shard::ShardId;

/// Number of segment indexes that are read concurrently.
const INDEX_READS: usize = 8;

/// Minimum time in milliseconds between two writes of an entry's last use to the store.
const TOUCH_MS: u64 = 10 * 60 * 1000;

impl Entry {
    /// Learns of the segments that other processes have written, evicted or removed since the last
    /// refresh.
    ///
    /// # Errors
    /// The store cannot be read. The segments that were known remain known.
    pub async fn refresh(&self) -> Result<(), CacheError> {
        let inner = &self.inner;
        let _changing = inner.changing.lock().await;
        let listed = self.listed().await?;
        let mut unknown = listed.clone();
        self.with(|known| unknown.retain(|(_, segment)| known.is_new(&segment.name)));
        let mut loads = futures::stream::iter(unknown)
            .map(|(shard, segment)| async move {
                let layout = segment.read_layout(&inner.shared.files, &shard).await;
                (layout, shard, segment)
            })
            .buffered(INDEX_READS);
        let mut loaded = Vec::new();
        while let Some((found, shard, segment)) = loads.next().await {
            match found {
                Ok(layout) => loaded.push((shard, segment, layout)),
                Err(Unreadable::Damaged(cause)) => self.lose(shard, &segment.name, &cause).await,
                Err(Unreadable::Failed(error)) => {
                    log::warn!("{error}: the rows in this segment are computed again")
                }
            }
        }
        let names: HashSet<&str> = { listed.iter() }
            .map(|(_, segment)| segment.name.as_str())
            .collect();
        self.with_mut(|known| known.keep_listed(&names));
        for (shard, segment, layout) in loaded {
            self.adopt(shard, &segment, &layout);
        }
        if !names.is_empty() {
            self.touch().await;
        }
        self.repair().await;
        Ok(())
    }

    /// Returns the segments that the manifests of all shards list, each with its shard.
    async fn listed(&self) -> Result<Vec<(ShardId, SegmentEntry)>, CacheError> {
        let inner = &self.inner;
        let files = &inner.shared.files;
        let mut manifests = futures::stream::iter(files.shards(&inner.key).await?)
            .map(|shard| async move { (shard, EntryManifest::load(files, &shard).await) })
            .buffered(INDEX_READS);
        let mut listed = Vec::new();
        while let Some((shard, loaded)) = manifests.next().await {
            let manifest = loaded?.manifest;
            // Segments whose rows have another schema do not belong to this prefix.
            if manifest.schema == inner.fingerprint {
                listed.extend(manifest.segments.into_iter().map(|of| (shard, of)));
            }
        }
        Ok(listed)
    }

    /// Adds the rows of `segment` to the rows that [`Entry::find`] finds.
    pub(super) fn adopt(&self, shard: ShardId, segment: &SegmentEntry, layout: &SegmentLayout) {
        let segment = KnownSegment {
            name: Arc::from(segment.name.as_str()),
            shard,
            path: self.inner.shared.files.segment(&shard, &segment.name),
            bytes: segment.bytes,
            blocks: layout.blocks.clone(),
            rows: layout.kept.saturating_add(layout.dropped),
        };
        self.with_mut(|known| known.add(segment, layout));
    }

    /// Handles a segment that cannot be read. A segment that the manifest of its shard no longer
    /// lists was evicted or removed, and is forgotten. A segment that the manifest still lists is
    /// damaged.
    pub(super) async fn lose(&self, shard: ShardId, name: &str, cause: &str) {
        let loaded = EntryManifest::load(&self.inner.shared.files, &shard).await;
        let listed = loaded.is_ok_and(|loaded| {
            let mut segments = loaded.manifest.segments.iter();
            segments.any(|segment| segment.name == name)
        });
        if listed {
            self.condemn(shard, name, cause);
        } else {
            self.with_mut(|known| known.forget(name));
        }
    }

    /// Records that a segment is damaged: its rows count as absent from now on.
    pub(super) fn condemn(&self, shard: ShardId, name: &str, cause: &str) {
        let path = self.inner.shared.files.segment(&shard, name);
        if self.with_mut(|known| known.condemn(shard, name)) {
            self.inner.shared.report_damage(&path, cause);
        }
    }

    /// Returns the names of the damaged segments that the manifest of `shard` may still list.
    pub(super) fn condemned(&self, shard: &ShardId) -> HashSet<String> {
        self.with(|known| known.condemned(shard))
    }

    /// Removes damaged segments from their manifests and from the store, so that their rows are
    /// written again. Leaves out the shards that a writer holds. That writer, or the next reader
    /// that finds the damage, then removes the segments.
    pub(super) async fn repair(&self) {
        let shards = self.with(Known::condemned_shards);
        if shards.is_empty() {
            return;
        }
        let _acquiring = self.inner.acquiring.lock().await;
        for shard in shards {
            if let Err(error) = self.repair_shard(&shard).await {
                log::debug!("{error}");
            }
        }
    }

    async fn repair_shard(&self, shard: &ShardId) -> Result<(), CacheError> {
        let shared = &self.inner.shared;
        let acquired = Exclusive::acquire(&shared.files, shard, shared.options.lease).await?;
        let Some(mut exclusive) = acquired else {
            return Ok(());
        };
        let condemned = self.condemned(shard);
        let dropped = exclusive.drop_segments(&condemned).await;
        exclusive.release().await;
        dropped?;
        self.with_mut(|known| known.absolve(&condemned));
        Ok(())
    }

    /// Records in the store that the entry is in use, at most once per [`TOUCH_MS`].
    pub(super) async fn touch(&self) {
        let now = self.inner.shared.files.clock.unix_ms();
        let last = self.inner.touched_ms.load(Ordering::Relaxed);
        if last == 0 || now.saturating_sub(last) >= TOUCH_MS {
            self.inner.touched_ms.store(now, Ordering::Relaxed);
            self.inner.shared.files.touch(&self.inner.key).await;
        }
    }
}
