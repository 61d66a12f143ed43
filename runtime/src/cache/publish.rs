//! Publishing a segment: writing its object, then listing the segment in the manifest.

use std::sync::Arc;

use super::compression::Compression;
use super::error::CacheError;
use super::manifest::SegmentEntry;
use super::quota::make_room;
use super::read::blocking;
use super::segment::{Encoded, Pending, choose_compression, encode};
use super::writer::{Writer, WriterState};

impl Writer {
    /// Writes the rows held in memory as a segment: first the segment's whole object, then the
    /// manifest that lists the segment.
    pub(super) async fn publish(&mut self) -> Result<(), CacheError> {
        let pending = std::mem::take(&mut self.pending);
        if self.state != WriterState::Writing {
            return Ok(());
        }
        let (encoded, compression) = self.encode(pending).await?;
        self.compression = Some(compression);
        let inner = Arc::clone(&self.entry.inner);
        let rows = encoded.layout.kept + encoded.layout.dropped;
        let segment = SegmentEntry {
            name: encoded.name,
            bytes: encoded.bytes,
            index_bytes: encoded.index_bytes,
            rows: encoded.layout.kept,
            dropped: encoded.layout.dropped,
            row_bytes: encoded.row_bytes,
            compression,
            saved_ps: rows.saturating_mul(inner.info.compute_ps_per_row),
            written_ms: inner.shared.files.clock.unix_ms(),
            writer: inner.info.writer.clone(),
        };
        let Some(exclusive) = &mut self.exclusive else {
            return Err(CacheError::Invariant(
                "a writer wrote after it had ended".to_owned(),
            ));
        };
        exclusive.confirm().await?;
        let _room = inner.shared.admission.lock().await;
        if !make_room(&inner.shared, &inner.key, segment.bytes, segment.saved_ps).await? {
            self.state = WriterState::Full;
            return Ok(());
        }
        let shard = exclusive.shard;
        let path = inner.shared.files.segment(&shard, &segment.name);
        let condemned = self.entry.condemned(&shard);
        let mut manifest = exclusive.manifest.clone();
        manifest.text = inner.info.text.clone();
        manifest.schema = inner.fingerprint.clone();
        manifest.compute_ps_per_row = inner.info.compute_ps_per_row;
        manifest
            .segments
            .retain(|old| !condemned.contains(&old.name));
        manifest.segments.push(segment.clone());
        let put = inner.shared.files.put_large(&path, encoded.parts).await;
        let _changing = inner.changing.lock().await;
        let written = match put {
            Ok(()) => exclusive.commit(manifest).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            // No manifest lists this object. If deleting fails, the object takes space until the
            // next writer of the entry deletes it as a leftover.
            inner.shared.files.delete(&path).await.ok();
            return Err(error);
        }
        for name in &condemned {
            let gone = inner.shared.files.segment(&shard, name);
            inner.shared.files.delete(&gone).await.ok();
        }
        self.entry.with_mut(|known| known.absolve(&condemned));
        self.entry.adopt(shard, &segment, &encoded.layout);
        self.entry.touch().await;
        Ok(())
    }

    async fn encode(&self, pending: Pending) -> Result<(Encoded, Compression), CacheError> {
        let inner = Arc::clone(&self.entry.inner);
        let chosen = self.compression;
        let work = blocking(move || {
            let block_bytes = inner.shared.options.block_bytes;
            let files = &inner.shared.files;
            let compression = match chosen {
                Some(compression) => compression,
                None => choose_compression(
                    &pending,
                    &inner.schema_message,
                    block_bytes,
                    &*files.clock,
                    files.meter.bandwidth(),
                    inner.info.expected_reads,
                )?,
            };
            let schema = &inner.schema_message;
            let encoded = encode(pending, schema, block_bytes, compression, &*files.clock)?;
            Ok((encoded, compression))
        });
        work.await?.map_err(|cause| CacheError::Rows {
            action: "store",
            cause,
        })
    }
}
