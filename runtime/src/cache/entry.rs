//! A cache entry: the stored rows of one prefix, which is a sub-plan over one scan.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

use arrow::datatypes::SchemaRef;

use super::block::schema_message;
use super::error::CacheError;
use super::index::SegmentSlot;
use super::key::{CacheKey, RowAddress, checksum_of, hex};
use super::known::{Known, KnownSegment};
use super::shared::StoreState;

/// Description of a prefix, the sub-plan whose rows are cached. The caller of the cache provides
/// this description.
#[derive(Debug, Clone)]
pub struct EntryInfo {
    /// Text of the prefix (a sub-plan), for display.
    pub text: String,
    /// Schema of the rows, with the metadata of extension types.
    pub schema: SchemaRef,
    /// Time to compute one row without the cache, in picoseconds.
    pub compute_ps_per_row: u64,
    /// Expected number of times that each row is read. The choice of the compression depends on
    /// this number.
    pub expected_reads: u32,
    /// Description of the writing process, for display.
    pub writer: String,
}

impl EntryInfo {
    /// Describes a prefix whose rows this process writes, and each of whose rows is expected to be
    /// read ten times.
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

/// Location of a row in the cache. A location is valid for the [`Entry`] that returned the
/// location, and for clones of that entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// The row is stored, and [`Entry::read`] can read the row.
    Stored(StoredPlace),
    /// The filter of the prefix dropped the row: there is nothing to read or to compute.
    Dropped,
}

/// Location of a stored row: a segment, and the number of the row in that segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPlace {
    pub(super) slot: SegmentSlot,
    pub(super) row: u32,
}

/// The cached rows of one prefix, a sub-plan over one scan. Cheap to clone; all clones share one
/// table of the stored rows.
#[derive(Clone)]
pub struct Entry {
    pub(super) inner: Arc<EntryState>,
}

pub(super) struct EntryState {
    pub(super) shared: Arc<StoreState>,
    pub(super) key: CacheKey,
    pub(super) info: EntryInfo,
    pub(super) schema_message: Vec<u8>,
    pub(super) fingerprint: String,
    known: RwLock<Known>,
    pub(super) touched_ms: AtomicU64,
    /// Held while `known` is updated from a manifest. Without this mutex, a refresh that has read
    /// an older manifest could forget segments that were published since then.
    pub(super) changing: tokio::sync::Mutex<()>,
    /// Held while damage is repaired, and while a writer acquires the write lock. A repair holds
    /// the write lock briefly; without this mutex, a writer of the same process could be refused
    /// during a repair.
    pub(super) acquiring: tokio::sync::Mutex<()>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.inner.key)
            .field("text", &self.inner.info.text)
            .finish_non_exhaustive()
    }
}

impl Entry {
    pub(super) async fn open(
        shared: Arc<StoreState>,
        key: CacheKey,
        info: EntryInfo,
    ) -> Result<Self, CacheError> {
        let schema_message = schema_message(&info.schema).map_err(|e| CacheError::Rows {
            action: "store",
            cause: e.to_string(),
        })?;
        let entry = Self {
            inner: Arc::new(EntryState {
                shared,
                key,
                fingerprint: hex(&checksum_of(&schema_message)),
                schema_message,
                info,
                known: RwLock::default(),
                touched_ms: AtomicU64::new(0),
                changing: tokio::sync::Mutex::default(),
                acquiring: tokio::sync::Mutex::default(),
            }),
        };
        entry.refresh().await?;
        Ok(entry)
    }

    /// Returns the key of the entry.
    pub fn key(&self) -> CacheKey {
        self.inner.key
    }

    /// Returns the schema of the rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.inner.info.schema
    }

    /// Returns the location of each row in `addresses`; `None` for a row that is not stored and has
    /// to be computed.
    pub fn find(&self, addresses: &[RowAddress]) -> Vec<Option<Location>> {
        let find = |known: &Known, address: RowAddress| {
            let found = known.find(address)?;
            Some(match found.at {
                Some(row) => Location::Stored(StoredPlace {
                    slot: found.slot,
                    row,
                }),
                None => Location::Dropped,
            })
        };
        self.with(|known| {
            addresses
                .iter()
                .map(|address| find(known, *address))
                .collect()
        })
    }

    /// Returns the number of rows whose location this process knows, including rows that the filter
    /// dropped.
    pub fn rows(&self) -> u64 {
        self.with(Known::rows)
    }

    /// Returns the size in bytes of the in-memory index from row addresses to locations.
    pub fn index_bytes(&self) -> usize {
        self.with(Known::index_bytes)
    }

    pub(super) fn segment(&self, slot: SegmentSlot) -> Option<Arc<KnownSegment>> {
        self.with(|known| known.segment(slot).cloned())
    }

    pub(super) fn with<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        let known = self.inner.known.read();
        look(&known.unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn with_mut<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        let known = self.inner.known.write();
        change(&mut known.unwrap_or_else(PoisonError::into_inner))
    }
}
