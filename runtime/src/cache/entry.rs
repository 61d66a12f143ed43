//! An entry: the rows of one prefix, as far as they are stored.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use object_store::path::Path;

use super::block::schema_message;
use super::error::CacheError;
use super::exclusive::Exclusive;
use super::files::Unreadable;
use super::index::{Index, Slot};
use super::key::{CacheKey, RowAddress, checksum_of, hex};
use super::layout::{Block, Layout};
use super::manifest::{Manifest, SegmentEntry};
use super::store::Shared;

/// Indexes of segments that are read side by side.
const INDEX_READS: usize = 8;

/// How often an entry that is read says so, at most.
const TOUCH_MS: u64 = 10 * 60 * 1000;

/// What the caller knows of a prefix.
#[derive(Debug, Clone)]
pub struct EntryInfo {
    /// The prefix, for people.
    pub text: String,
    /// Columns of its rows, with the metadata of extension types.
    pub schema: SchemaRef,
    /// What computing a row takes, in picoseconds.
    pub compute_ps_per_row: u64,
    /// How often each row will be read, about; compression is chosen by it.
    pub expected_reads: u32,
    /// Who writes, for people.
    pub writer: String,
}

impl EntryInfo {
    /// A prefix whose rows are read ten times, written by this process.
    pub fn new(text: impl Into<String>, schema: SchemaRef, compute_ps_per_row: u64) -> Self {
        Self {
            text: text.into(),
            schema,
            compute_ps_per_row,
            expected_reads: 10,
            writer: format!("process {}", std::process::id()),
        }
    }
}

/// Where a row is. Valid for the entry that gave it, and its clones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// It is stored: [`Entry::read`] reads it.
    Stored(Place),
    /// The prefix's filter dropped it: there is nothing to read or to compute.
    Dropped,
}

/// A row of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub(super) slot: Slot,
    pub(super) row: u32,
}

/// A segment whose index was read.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) name: Arc<str>,
    pub(super) path: Path,
    pub(super) bytes: u64,
    pub(super) blocks: Vec<Block>,
    rows: u64,
}

/// The rows of one prefix. Cheap to clone; clones share what they know.
#[derive(Clone)]
pub struct Entry {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) key: CacheKey,
    pub(super) info: EntryInfo,
    pub(super) schema_message: Vec<u8>,
    pub(super) fingerprint: String,
    state: RwLock<State>,
    touched_ms: AtomicU64,
    /// Held while what is known is brought in line with a manifest: a refresh that read an older
    /// one must not forget what was published since.
    pub(super) changing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// Segments, in the order in which they were learned of; `None` when they are gone.
    slots: Vec<Option<Arc<Segment>>>,
    names: HashMap<Arc<str>, Slot>,
    /// Tables of addresses, each at least twice as long as the next: adding a segment copies
    /// a row's address a logarithmic number of times.
    levels: Vec<Index>,
    /// Damaged segments that the manifest may still list.
    condemned: HashSet<String>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.inner.key)
            .field("text", &self.inner.info.text)
            .finish_non_exhaustive()
    }
}

impl State {
    fn add(&mut self, segment: Segment, layout: &Layout) {
        let slot = self.slots.len() as Slot;
        self.names.insert(Arc::clone(&segment.name), slot);
        self.slots.push(Some(Arc::new(segment)));
        self.levels.push(Index::new(slot, &layout.runs));
        while let [.., longer, last] = self.levels.as_slice()
            && longer.len() < 2 * last.len()
        {
            let merged = longer.merged(last, |slot| alive(&self.slots, slot));
            self.levels.truncate(self.levels.len() - 2);
            self.levels.push(merged);
        }
    }

    fn forget(&mut self, name: &str) {
        if let Some(slot) = self.names.remove(name)
            && let Some(segment) = self.slots.get_mut(slot as usize)
        {
            *segment = None;
        }
    }
}

fn alive(slots: &[Option<Arc<Segment>>], slot: Slot) -> bool {
    slots.get(slot as usize).is_some_and(Option::is_some)
}

impl Entry {
    pub(super) async fn open(
        shared: Arc<Shared>,
        key: CacheKey,
        info: EntryInfo,
    ) -> Result<Self, CacheError> {
        let schema_message = schema_message(&info.schema).map_err(|e| CacheError::Rows {
            action: "store",
            cause: e.to_string(),
        })?;
        let entry = Self {
            inner: Arc::new(Inner {
                shared,
                key,
                fingerprint: hex(&checksum_of(&schema_message)),
                schema_message,
                info,
                state: RwLock::default(),
                touched_ms: AtomicU64::new(0),
                changing: tokio::sync::Mutex::default(),
            }),
        };
        entry.refresh().await?;
        Ok(entry)
    }

    /// The key.
    pub fn key(&self) -> CacheKey {
        self.inner.key
    }

    /// Columns of the rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.inner.info.schema
    }

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
        let unknown: Vec<SegmentEntry> = self.with(|state| {
            let unknown = listed.iter().filter(|segment| {
                !state.names.contains_key(segment.name.as_str())
                    && !state.condemned.contains(&segment.name)
            });
            unknown.cloned().collect()
        });
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
                Err(Unreadable::Damaged(cause)) => self.condemn(&segment.name, &cause),
                Err(Unreadable::Failed(error)) => {
                    log::warn!("{error}: its rows are computed again")
                }
            }
        }
        let names: HashSet<&str> = listed.iter().map(|s| s.name.as_str()).collect();
        self.with_mut(|state| {
            let gone: Vec<Arc<str>> = state
                .names
                .keys()
                .filter(|name| !names.contains(&***name))
                .cloned()
                .collect();
            for name in gone {
                state.forget(&name);
            }
            state.condemned.retain(|name| names.contains(name.as_str()));
        });
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
        self.with_mut(|state| {
            // Clones of an entry may learn of it at once.
            if !state.names.contains_key(&segment.name) {
                state.add(segment, layout);
            }
        });
    }

    /// Where rows are; `None` for those that have to be computed.
    pub fn find(&self, addresses: &[RowAddress]) -> Vec<Option<Location>> {
        self.with(|state| {
            let find = |address: &RowAddress| {
                let mut found = state.levels.iter().filter_map(|level| level.find(*address));
                let found = found.find(|found| alive(&state.slots, found.slot))?;
                Some(match found.at {
                    Some(row) => Location::Stored(Place {
                        slot: found.slot,
                        row,
                    }),
                    None => Location::Dropped,
                })
            };
            addresses.iter().map(find).collect()
        })
    }

    /// Number of rows that are known of, those that the filter dropped included.
    pub fn rows(&self) -> u64 {
        self.with(|state| {
            state
                .slots
                .iter()
                .flatten()
                .map(|segment| segment.rows)
                .sum()
        })
    }

    /// Bytes of memory that the addresses of the rows take.
    pub fn index_bytes(&self) -> usize {
        self.with(|state| state.levels.iter().map(Index::bytes).sum())
    }

    pub(super) fn segment(&self, slot: Slot) -> Option<Arc<Segment>> {
        self.with(|state| state.slots.get(slot as usize).cloned().flatten())
    }

    /// Notes that a segment is damaged: its rows are absent from now on.
    pub(super) fn condemn(&self, name: &str, cause: &str) {
        let path = self.inner.shared.files.segment(&self.inner.key, name);
        let new = self.with_mut(|state| {
            state.forget(name);
            state.condemned.insert(name.to_owned())
        });
        if new {
            self.inner.shared.report_damage(&path, cause);
        }
    }

    pub(super) fn condemned(&self) -> HashSet<String> {
        self.with(|state| state.condemned.clone())
    }

    /// Takes damaged segments out of the manifest, so that their rows are written again. Where
    /// a writer is at work it does so itself, or whoever finds them next.
    pub(super) async fn repair(&self) {
        let condemned = self.condemned();
        if condemned.is_empty() {
            return;
        }
        let shared = &self.inner.shared;
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
            Ok(_) => {
                self.with_mut(|state| state.condemned.retain(|name| !condemned.contains(name)))
            }
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

    fn with<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(
            &self
                .inner
                .state
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    fn with_mut<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(
            &mut self
                .inner
                .state
                .write()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}
