//! Keeps the segments that an entry knows up to date with the store.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt;

use super::entry::Entry;
use super::error::CacheError;
use super::exclusive::Exclusive;
use super::files::Unreadable;
use super::known::KnownSegment;
use super::layout::SegmentLayout;
use super::manifest::{EntryManifest, SegmentEntry};

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
        let manifest = EntryManifest::load(&inner.shared.files, &inner.key)
            .await?
            .manifest;
        // Segments whose rows have another schema do not belong to this prefix.
        let listed = if manifest.schema == inner.fingerprint {
            manifest.segments
        } else {
            Vec::new()
        };
        let mut unknown = listed.clone();
        self.with(|known| unknown.retain(|segment| known.is_new(&segment.name)));
        let mut loads = futures::stream::iter(unknown)
            .map(|segment| async move {
                let layout = segment.read_layout(&inner.shared.files, &inner.key).await;
                (layout, segment)
            })
            .buffered(INDEX_READS);
        let mut loaded = Vec::new();
        while let Some((found, segment)) = loads.next().await {
            match found {
                Ok(layout) => loaded.push((segment, layout)),
                Err(Unreadable::Damaged(cause)) => self.lose(&segment.name, &cause).await,
                Err(Unreadable::Failed(error)) => {
                    log::warn!("{error}: the rows in this segment are computed again")
                }
            }
        }
        let names: HashSet<&str> = listed.iter().map(|s| s.name.as_str()).collect();
        self.with_mut(|known| known.keep_listed(&names));
        for (segment, layout) in loaded {
            self.adopt(&segment, &layout);
        }
        if !names.is_empty() {
            self.touch().await;
        }
        self.repair().await;
        Ok(())
    }

    /// Adds the rows of `segment` to the rows that [`Entry::find`] finds.
    pub(super) fn adopt(&self, segment: &SegmentEntry, layout: &SegmentLayout) {
        let segment = KnownSegment {
            name: Arc::from(segment.name.as_str()),
            path: self
                .inner
                .shared
                .files
                .segment(&self.inner.key, &segment.name),
            bytes: segment.bytes,
            blocks: layout.blocks.clone(),
            rows: layout.kept.saturating_add(layout.dropped),
        };
        self.with_mut(|known| known.add(segment, layout));
    }

    /// Handles a segment that cannot be read. A segment that the manifest no longer lists was
    /// evicted or removed, and is forgotten. A segment that the manifest still lists is damaged.
    pub(super) async fn lose(&self, name: &str, cause: &str) {
        let loaded = EntryManifest::load(&self.inner.shared.files, &self.inner.key).await;
        let listed = loaded.is_ok_and(|loaded| {
            let mut segments = loaded.manifest.segments.iter();
            segments.any(|segment| segment.name == name)
        });
        if listed {
            self.condemn(name, cause);
        } else {
            self.with_mut(|known| known.forget(name));
        }
    }

    /// Records that a segment is damaged: its rows count as absent from now on.
    pub(super) fn condemn(&self, name: &str, cause: &str) {
        let path = self.inner.shared.files.segment(&self.inner.key, name);
        if self.with_mut(|known| known.condemn(name)) {
            self.inner.shared.report_damage(&path, cause);
        }
    }

    pub(super) fn condemned(&self) -> HashSet<String> {
        self.with(|known| known.condemned().clone())
    }

    /// Removes damaged segments from the manifest and from the store, so that their rows are
    /// written again. Does nothing while a writer holds the entry. That writer, or the next reader
    /// that finds the damage, then removes the segments.
    pub(super) async fn repair(&self) {
        let condemned = self.condemned();
        if condemned.is_empty() {
            return;
        }
        let shared = &self.inner.shared;
        let _acquiring = self.inner.acquiring.lock().await;
        let acquired =
            Exclusive::acquire(&shared.files, &self.inner.key, shared.options.lease).await;
        let done = match acquired {
            Ok(Some(mut exclusive)) => {
                let done = exclusive.drop_segments(&condemned).await;
                exclusive.release().await;
                done
            }
            Ok(None) => return,
            Err(error) => Err(error),
        };
        match done {
            Ok(_) => self.with_mut(|known| known.absolve(&condemned)),
            Err(error) => log::debug!("{error}"),
        }
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
