//! Keeping what an entry knows in line with the store.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt;

use super::entry::Entry;
use super::error::CacheError;
use super::exclusive::Exclusive;
use super::files::Unreadable;
use super::known::Segment;
use super::layout::Layout;
use super::manifest::{Manifest, SegmentEntry};

/// Indexes of segments that are read side by side.
const INDEX_READS: usize = 8;

/// How often an entry that is read says so, at most.
const TOUCH_MS: u64 = 10 * 60 * 1000;

impl Entry {
    /// Learns what other processes wrote, evicted or removed since.
    ///
    /// # Errors
    /// The store cannot be read. What was known before is still known.
    pub async fn refresh(&self) -> Result<(), CacheError> {
        let inner = &self.inner;
        let _changing = inner.changing.lock().await;
        let manifest = Manifest::load(&inner.shared.files, &inner.key)
            .await?
            .manifest;
        // Rows of another schema are none of this prefix.
        let listed = match manifest.schema == inner.fingerprint {
            true => manifest.segments,
            false => Vec::new(),
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
                    log::warn!("{error}: its rows are computed again")
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

    /// Makes the rows of a segment known.
    pub(super) fn adopt(&self, segment: &SegmentEntry, layout: &Layout) {
        let segment = Segment {
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

    /// Notes that a segment cannot be had. Where no manifest lists it any more it was evicted or
    /// removed, else it is damaged.
    pub(super) async fn lose(&self, name: &str, cause: &str) {
        let loaded = Manifest::load(&self.inner.shared.files, &self.inner.key).await;
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

    /// Notes that a segment is damaged: its rows are absent from now on.
    pub(super) fn condemn(&self, name: &str, cause: &str) {
        let path = self.inner.shared.files.segment(&self.inner.key, name);
        if self.with_mut(|known| known.condemn(name)) {
            self.inner.shared.report_damage(&path, cause);
        }
    }

    pub(super) fn condemned(&self) -> HashSet<String> {
        self.with(|known| known.condemned().clone())
    }

    /// Takes damaged segments out of the manifest, so that their rows are written again. Where
    /// a writer is at work it does so itself, or whoever finds them next.
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

    /// Notes, now and then, that the entry is in use.
    pub(super) async fn touch(&self) {
        let now = self.inner.shared.files.clock.unix_ms();
        let last = self.inner.touched_ms.load(Ordering::Relaxed);
        if last == 0 || now.saturating_sub(last) >= TOUCH_MS {
            self.inner.touched_ms.store(now, Ordering::Relaxed);
            self.inner.shared.files.touch(&self.inner.key).await;
        }
    }
}
