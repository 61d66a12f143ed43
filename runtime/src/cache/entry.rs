//! An entry: the rows of one prefix, as far as they are stored.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

use arrow::datatypes::SchemaRef;

use super::block::schema_message;
use super::error::CacheError;
use super::index::Slot;
use super::key::{CacheKey, RowAddress, checksum_of, hex};
use super::known::{Known, Segment};
use super::store::Shared;

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
    known: RwLock<Known>,
    pub(super) touched_ms: AtomicU64,
    /// Held while what is known is brought in line with a manifest: a refresh that read an older
    /// one must not forget what was published since.
    pub(super) changing: tokio::sync::Mutex<()>,
    /// Held while damage is repaired, and while a writer asks for its right: it must not be refused for
    /// the moment that a repair has it. Another run's repair is another process's: it may.
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
                known: RwLock::default(),
                touched_ms: AtomicU64::new(0),
                changing: tokio::sync::Mutex::default(),
                acquiring: tokio::sync::Mutex::default(),
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

    /// Where rows are; `None` for those that have to be computed.
    pub fn find(&self, addresses: &[RowAddress]) -> Vec<Option<Location>> {
        let find = |known: &Known, address: RowAddress| {
            let found = known.find(address)?;
            Some(match found.at {
                Some(row) => Location::Stored(Place {
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

    /// Number of rows that are known of, those that the filter dropped included.
    pub fn rows(&self) -> u64 {
        self.with(Known::rows)
    }

    /// Bytes of memory that the addresses of the rows take.
    pub fn index_bytes(&self) -> usize {
        self.with(Known::index_bytes)
    }

    pub(super) fn segment(&self, slot: Slot) -> Option<Arc<Segment>> {
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
