//! Writing of rows to a cache entry.

use std::collections::HashSet;

use arrow::array::RecordBatch;

use super::block::guarded;
use super::compression::Compression;
use super::entry::Entry;
use super::error::CacheError;
use super::exclusive::Exclusive;
use super::key::RowAddress;
use super::segment::{MAX_ROWS, Pending};
use super::shard::ShardId;
use super::size::row_bytes;

/// State of a writer, which decides whether appended rows are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterState {
    /// Appended rows are written.
    Writing,
    /// Appended rows are ignored, because they do not fit the quota.
    Full,
    /// Appended rows are ignored, because an earlier operation of the writer failed.
    Disabled,
}

/// Writes rows to a cache entry. Each shard of an entry has at most one writer at a time, over all
/// processes.
///
/// Rows are held in memory until they fill a segment. [`finish`](Self::finish) writes the remaining
/// rows and releases the right to write. Dropping the writer without finishing loses the rows that
/// were not flushed. In an object store, other writers then have to wait until the lease has
/// expired.
#[derive(Debug)]
pub struct Writer {
    pub(super) entry: Entry,
    /// The right to write; `None` once the writer has finished or failed.
    pub(super) exclusive: Option<Exclusive>,
    pub(super) pending: Pending,
    pub(super) state: WriterState,
    /// The compression of all segments of this writer, chosen when the first segment is written.
    pub(super) compression: Option<Compression>,
}

impl Entry {
    /// Creates the only writer of the entry; `None` while another such writer exists, in this or
    /// another process. Leftovers of a crashed writer are removed.
    ///
    /// # Errors
    /// The store cannot be read or locked.
    pub async fn writer(&self) -> Result<Option<Writer>, CacheError> {
        self.shard_writer(ShardId::first(self.inner.key)).await
    }

    /// Creates one of several writers of the entry, which should write different rows. `None` if the
    /// entry has the maximum number of writers already. Leftovers of a crashed writer are removed.
    ///
    /// # Errors
    /// As [`writer`](Self::writer).
    pub async fn shared_writer(&self) -> Result<Option<Writer>, CacheError> {
        for shard in ShardId::all(self.inner.key) {
            if let Some(writer) = self.shard_writer(shard).await? {
                return Ok(Some(writer));
            }
        }
        Ok(None)
    }

    /// Creates the writer of a shard; `None` while another one exists.
    async fn shard_writer(&self, shard: ShardId) -> Result<Option<Writer>, CacheError> {
        let shared = &self.inner.shared;
        let acquired = {
            let _acquiring = self.inner.acquiring.lock().await;
            Exclusive::acquire(&shared.files, &shard, shared.options.lease).await?
        };
        let Some(mut exclusive) = acquired else {
            return Ok(None);
        };
        if let Err(error) = self.prepare(&mut exclusive).await {
            exclusive.release().await;
            return Err(error);
        }
        Ok(Some(Writer {
            entry: self.clone(),
            exclusive: Some(exclusive),
            pending: Pending::default(),
            state: WriterState::Writing,
            compression: None,
        }))
    }

    /// Removes segments of the shard that are damaged or have another schema. Then learns of the
    /// segments that were written since the entry was opened, whose rows need not be written again.
    async fn prepare(&self, exclusive: &mut Exclusive) -> Result<(), CacheError> {
        let of_other_schema = exclusive.manifest.schema != self.inner.fingerprint;
        let unusable: HashSet<String> = if of_other_schema {
            exclusive
                .manifest
                .segments
                .iter()
                .map(|s| s.name.clone())
                .collect()
        } else {
            self.condemned(&exclusive.shard)
        };
        exclusive.drop_segments(&unusable).await?;
        exclusive.remove_leftovers().await?;
        self.refresh().await
    }
}

impl Writer {
    /// Returns the state of the writer.
    pub fn state(&self) -> WriterState {
        self.state
    }

    /// Returns the size in bytes of the rows that are held in memory and not written yet.
    pub fn pending_bytes(&self) -> u64 {
        self.pending.bytes
    }

    /// Adds the rows of `batch`, whose addresses are `addresses`, and records that the prefix's
    /// filter dropped the rows at `dropped`. Skips rows that are already stored. Writes a segment
    /// once enough rows are held in memory.
    ///
    /// # Errors
    /// The rows do not fit the entry's schema, or the store fails. After an error the writer is
    /// [`Disabled`](WriterState::Disabled): the writer accepts further rows, but ignores these
    /// rows. Rows that were stored before the error remain readable.
    pub async fn append(
        &mut self,
        addresses: &[RowAddress],
        batch: &RecordBatch,
        dropped: &[RowAddress],
    ) -> Result<(), CacheError> {
        if self.state != WriterState::Writing {
            return Ok(());
        }
        let done = self.try_append(addresses, batch, dropped).await;
        self.settle(done).await
    }

    /// Writes the rows held in memory as a segment, so that other processes can read them.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn flush(&mut self) -> Result<(), CacheError> {
        if self.state != WriterState::Writing || self.pending.rows() == 0 {
            return Ok(());
        }
        let done = self.publish().await;
        self.settle(done).await
    }

    /// Writes the rows held in memory, and releases the right to write.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn finish(mut self) -> Result<(), CacheError> {
        let done = self.flush().await;
        if let Some(exclusive) = self.exclusive.take() {
            exclusive.release().await;
        }
        if let Err(error) = self.entry.inner.shared.save_bandwidth().await {
            log::debug!("{error}");
        }
        done
    }

    /// Disables the writer after an error and releases its right to write: a full disk stays full,
    /// and another process may be able to write instead.
    async fn settle(&mut self, done: Result<(), CacheError>) -> Result<(), CacheError> {
        if done.is_err() {
            self.state = WriterState::Disabled;
            self.pending = Pending::default();
            if let Some(exclusive) = self.exclusive.take() {
                exclusive.release().await;
            }
        }
        done
    }

    async fn try_append(
        &mut self,
        addresses: &[RowAddress],
        batch: &RecordBatch,
        dropped: &[RowAddress],
    ) -> Result<(), CacheError> {
        let schema = self.entry.schema();
        if batch.schema_ref().fields() != schema.fields() {
            return Err(CacheError::Invariant(format!(
                "rows of the schema {} were appended to an entry of the schema {schema}",
                batch.schema_ref()
            )));
        }
        let last = |address: &RowAddress| address.row == u64::MAX;
        if addresses.len() != batch.num_rows() || addresses.iter().chain(dropped).any(last) {
            return Err(CacheError::Invariant(format!(
                "{} addresses for {} rows, or a row number out of range",
                addresses.len(),
                batch.num_rows()
            )));
        }
        let known = self.entry.find(addresses);
        let new: Vec<(u64, RowAddress)> = (0u64..)
            .zip(addresses)
            .zip(known)
            .filter(|(_, known)| known.is_none())
            .map(|((row, address), _)| (row, *address))
            .collect();
        // Rows are added in parts, because a batch may be larger than a segment.
        let bytes: u64 = row_bytes(batch).iter().sum();
        let each = (bytes / batch.num_rows().max(1) as u64).max(1);
        let step = (self.entry.inner.shared.options.segment_bytes / 4 / each).clamp(1, 1 << 16);
        for rows in new.chunks(step as usize) {
            let pending = &mut self.pending;
            guarded(|| pending.add(batch, rows)).map_err(|cause| CacheError::Rows {
                action: "store",
                cause,
            })?;
            self.publish_if_full().await?;
        }
        let known = self.entry.find(dropped);
        let dropped: Vec<RowAddress> = dropped
            .iter()
            .zip(known)
            .filter(|(_, known)| known.is_none())
            .map(|(address, _)| *address)
            .collect();
        for rows in dropped.chunks(MAX_ROWS / 4) {
            self.pending.add_dropped(rows.iter().copied());
            self.publish_if_full().await?;
        }
        Ok(())
    }

    async fn publish_if_full(&mut self) -> Result<(), CacheError> {
        let enough = self.entry.inner.shared.options.segment_bytes;
        if self.pending.bytes >= enough || self.pending.rows() >= MAX_ROWS {
            self.publish().await?;
        }
        Ok(())
    }
}
