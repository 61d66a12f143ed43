//! An entry: those rows of one prefix that are stored.

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

/// Description of a prefix, which the caller of the cache provides.
#[derive(Debug, Clone)]
pub struct EntryInfo {
    /// Text of the prefix, for display.
    pub text: String,
    /// Schema of the rows, with the metadata of extension types.
    pub schema: SchemaRef,
    /// Time to compute a row, in picoseconds.
    pub compute_ps_per_row: u64,
    /// Expected number of reads of each row. The compression is chosen by it.
    pub expected_reads: u32,
    /// Description of the writing process, for display.
    pub writer: String,
}

impl EntryInfo {
    /// Describes a prefix whose rows are expected to be read ten times and are written by this
    /// process.
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

/// Location of a row. It is valid for the entry that returned it, and for clones of that entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// The row is stored: [`Entry::read`] reads it.
    Stored(StoredPlace),
    /// The filter of the prefix dropped the row: there is nothing to read or to compute.
    Dropped,
}

/// A row of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPlace {
    pub(super) slot: SegmentSlot,
    pub(super) row: u32,
}

/// The rows of one prefix. Cheap to clone; clones share what they know of the stored rows.
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
    /// Held while `known` is updated from a manifest: a refresh that read an older manifest must
    /// not forget segments that were published since.
    pub(super) changing: tokio::sync::Mutex<()>,
    /// Held while damage is repaired, and while a writer acquires the write lock. A repair holds
    /// the write lock briefly; without this mutex, a writer of the same process could be refused
    /// because of it.
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

    /// Finds the locations of rows; `None` for rows that have to be computed.
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

    /// Returns the number of rows known, including those that the filter dropped.
    pub fn rows(&self) -> u64 {
        self.with(Known::rows)
    }

    /// Returns the memory that the addresses of the rows take, in bytes.
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
