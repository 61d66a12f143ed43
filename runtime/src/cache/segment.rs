//! Encodes a segment from the rows that a writer holds in memory.

use arrow::array::{RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::{interleave_record_batch, take_record_batch};
use arrow::error::ArrowError;
use bytes::Bytes;

use super::bandwidth::Bandwidth;
use super::block::{self, END, MAX_BLOCK_BYTES, guarded};
use super::clock::Clock;
use super::compression::{Compression, CompressionTrial, choose};
use super::key::{RowAddress, checksum_of, fresh, hex};
use super::layout::{self, Block, SegmentLayout};
use super::size::{compact, row_bytes};

/// Number of rows at which a segment is written, even if the rows take few bytes. The limit bounds
/// the memory for the addresses of the rows.
pub(super) const MAX_ROWS: usize = 1 << 19;

/// Size in bytes of the sample of rows on which each compression is tried.
const SAMPLE_BYTES: u64 = 1 << 20;

/// Rows that a writer has not written yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    batches: Vec<RecordBatch>,
    rows: Vec<PendingRow>,
    /// Total size in bytes of the rows that the filter kept.
    pub(super) bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct PendingRow {
    address: RowAddress,
    /// Index into [`Pending::batches`], and number of the row in that batch; `None` when the filter
    /// dropped the row.
    place: Option<(u32, u32)>,
    bytes: u32,
}

impl Pending {
    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Adds copies of `rows`, each given as (row number in `batch`, address). Rows are copied so
    /// that the memory of `batch` can be freed.
    pub(super) fn add(
        &mut self,
        batch: &RecordBatch,
        rows: &[(u64, RowAddress)],
    ) -> Result<(), ArrowError> {
        let indices = UInt64Array::from_iter_values(rows.iter().map(|(row, _)| *row));
        let batch = match batch.num_columns() {
            0 => batch.slice(0, rows.len()),
            _ => compact(&take_record_batch(batch, &indices)?)?,
        };
        let number = self.batches.len() as u32;
        for (row, (size, (_, address))) in row_bytes(&batch).into_iter().zip(rows).enumerate() {
            // A row that does not fit into a block is not stored.
            if size < MAX_BLOCK_BYTES / 2 {
                self.bytes += size;
                self.rows.push(PendingRow {
                    address: *address,
                    place: Some((number, row as u32)),
                    bytes: size as u32,
                });
            }
        }
        self.batches.push(batch);
        Ok(())
    }

    /// Adds the addresses of rows that the filter dropped.
    pub(super) fn add_dropped(&mut self, rows: impl Iterator<Item = RowAddress>) {
        self.rows.extend(rows.map(|address| PendingRow {
            address,
            place: None,
            bytes: 0,
        }));
    }

    /// Sorts the rows by address. Of several rows with the same address, the row that was added
    /// first stays.
    fn sort(&mut self) {
        self.rows.sort_by_key(|row| row.address);
        self.rows.dedup_by_key(|row| row.address);
    }

    /// Groups the kept rows into blocks of about `block_bytes` bytes.
    fn blocks(&self, block_bytes: u64) -> Vec<Vec<PendingRow>> {
        let mut blocks: Vec<Vec<PendingRow>> = Vec::new();
        let mut filled = 0;
        for row in self.rows.iter().filter(|row| row.place.is_some()) {
            let bytes = u64::from(row.bytes);
            match blocks.last_mut() {
                Some(block) if filled + bytes <= block_bytes => block.push(*row),
                _ => {
                    blocks.push(vec![*row]);
                    filled = 0;
                }
            }
            filled += bytes;
        }
        blocks
    }

    /// Copies the rows of a block into one batch.
    fn gather(&self, block: &[PendingRow]) -> Result<RecordBatch, ArrowError> {
        let mut used: Vec<u32> = block.iter().filter_map(|row| Some(row.place?.0)).collect();
        used.sort_unstable();
        used.dedup();
        let batches: Vec<&RecordBatch> = used
            .iter()
            .filter_map(|number| self.batches.get(*number as usize))
            .collect();
        let Some(first) = batches.first() else {
            return Err(ArrowError::InvalidArgumentError(
                "a block without rows".to_owned(),
            ));
        };
        if first.num_columns() == 0 {
            let options = RecordBatchOptions::new().with_row_count(Some(block.len()));
            return RecordBatch::try_new_with_options(first.schema(), vec![], &options);
        }
        let places: Vec<(usize, usize)> = block
            .iter()
            .filter_map(|row| row.place)
            .map(|(batch, row)| (used.partition_point(|&b| b < batch), row as usize))
            .collect();
        compact(&interleave_record_batch(&batches, &places)?)
    }
}

/// An encoded segment.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) name: String,
    /// The parts of the segment's object, in order. The last part is the index.
    pub(super) parts: Vec<Bytes>,
    pub(super) bytes: u64,
    pub(super) index_bytes: u64,
    pub(super) row_bytes: u64,
    pub(super) layout: SegmentLayout,
}

/// Encodes all rows of `pending` as a segment. The error is the reason as text, to which the caller
/// adds the operation.
pub(super) fn encode(
    mut pending: Pending,
    schema_message: &[u8],
    block_bytes: u64,
    compression: Compression,
    clock: &dyn Clock,
) -> Result<Encoded, String> {
    pending.sort();
    let mut parts = vec![Bytes::copy_from_slice(schema_message)];
    let mut blocks = Vec::new();
    let mut start = schema_message.len() as u64;
    let mut first_row = 0;
    for rows in pending.blocks(block_bytes) {
        let bytes = guarded(|| block::encode(&pending.gather(&rows)?, compression))?;
        let block = Block {
            start,
            bytes: u32::try_from(bytes.len()).map_err(|e| e.to_string())?,
            first_row,
            rows: rows.len() as u32,
            checksum: checksum_of(&bytes),
        };
        start += bytes.len() as u64;
        first_row += block.rows;
        blocks.push(block);
        parts.push(bytes.into());
    }
    parts.push(Bytes::from_static(&END));
    let rows = pending
        .rows
        .iter()
        .map(|row| (row.address, row.place.is_some()));
    let runs = layout::runs(rows);
    let index = layout::encode(fresh(clock), schema_message.len() as u64, &blocks, &runs);
    let name = hex(&checksum_of(&index));
    let data = start + END.len() as u64;
    // Decodes the index as a reader does, so that no unreadable segment is published.
    let layout = layout::decode_checked(&index, data, &name)?;
    let index_bytes = index.len() as u64;
    parts.push(index.into());
    Ok(Encoded {
        name,
        parts,
        bytes: data + index_bytes,
        index_bytes,
        row_bytes: pending.rows.iter().map(|row| u64::from(row.bytes)).sum(),
        layout,
    })
}

/// Tries every compression on the first rows of `pending`, and returns the compression that
/// [`choose`] picks.
pub(super) fn choose_compression(
    pending: &Pending,
    schema_message: &[u8],
    block_bytes: u64,
    clock: &dyn Clock,
    bandwidth: Bandwidth,
    reads: u32,
) -> Result<Compression, String> {
    let mut sampled = 0;
    let mut blocks = pending.blocks(block_bytes);
    blocks.retain(|rows| {
        let take = sampled < SAMPLE_BYTES;
        sampled += rows.iter().map(|row| u64::from(row.bytes)).sum::<u64>();
        take
    });
    let batches = blocks.iter().map(|rows| guarded(|| pending.gather(rows)));
    let batches = batches.collect::<Result<Vec<_>, _>>()?;
    let total = batches.iter().flat_map(row_bytes).sum::<u64>();
    if total == 0 {
        return Ok(Compression::None);
    }
    let mut trials = Vec::new();
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let start = clock.elapsed();
        let encoded = batches
            .iter()
            .map(|batch| guarded(|| block::encode(batch, compression)));
        let encoded = encoded.collect::<Result<Vec<_>, _>>()?;
        let between = clock.elapsed();
        let stored: usize = encoded.iter().map(Vec::len).sum();
        for (bytes, batch) in encoded.into_iter().zip(&batches) {
            block::decode(schema_message, bytes.into(), batch.num_rows() as u32)?;
        }
        let end = clock.elapsed();
        let per_byte = |time: std::time::Duration| time.as_nanos() as f64 / total as f64;
        trials.push(CompressionTrial {
            compression,
            ratio: stored as f64 / total as f64,
            encode: per_byte(between.saturating_sub(start)),
            decode: per_byte(end.saturating_sub(between)),
        });
    }
    Ok(choose(&trials, bandwidth, reads))
}
