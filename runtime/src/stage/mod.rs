//! The row stage, which holds the rows of a window and returns them in any order.

mod error;
mod ranges;
mod space;
mod spill;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt64Array};
use arrow::compute::{interleave_record_batch, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

use crate::record_batch::record_batch;
pub use error::SpillError;
use ranges::RowRanges;
pub(crate) use space::SpillSpace;
use spill::Spill;

/// Number of bytes by which the buffers of a batch may exceed twice the size of its rows; a batch
/// with larger buffers is copied.
const SLACK_BYTES: usize = 64 << 10;

/// Store for rows, which returns them in any order. Rows are held in memory while the pool grants
/// memory, then in a temporary file.
///
/// Rows are numbered from 0 in the order of insertion. Returned rows equal the inserted rows bit for
/// bit, with the same types. The temporary file has no name, so the system removes it when the
/// process ends.
#[derive(Debug)]
pub(crate) struct RowStage {
    schema: SchemaRef,
    reservation: MemoryReservation,
    space: Arc<SpillSpace>,
    batches: Vec<RecordBatch>,
    /// The rows of each batch in `batches`. The numbers of spilled rows begin at their end.
    ranges: RowRanges,
    spill: Option<Spill>,
}

impl RowStage {
    /// Creates an empty stage for rows of `schema`. The stage takes memory from `pool`, and when
    /// the pool is exhausted, file space from `space`.
    pub(crate) fn new(
        schema: SchemaRef,
        pool: &Arc<dyn MemoryPool>,
        space: Arc<SpillSpace>,
    ) -> Self {
        let reservation = MemoryConsumer::new("row stage")
            .with_can_spill(true)
            .register(pool);
        Self {
            schema,
            reservation,
            space,
            batches: Vec::new(),
            ranges: RowRanges::default(),
            spill: None,
        }
    }

    /// Returns the number of rows pushed so far.
    pub(crate) fn rows(&self) -> u64 {
        self.ranges.end() + self.spilled_rows()
    }

    /// Returns the number of rows in the temporary file.
    pub(crate) fn spilled_rows(&self) -> u64 {
        self.spill.as_ref().map_or(0, Spill::rows)
    }

    /// Returns the memory that the stage has reserved in the pool, in bytes.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.reservation.size()
    }

    /// Appends the rows of `batch`. Blocks while rows are written to the temporary file. Fails if a
    /// temporary file cannot be created, if the disk is full, if the limit of the file space is
    /// reached, or if the types of the columns differ from those of the schema.
    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let types = batch.columns().iter().map(|column| column.data_type());
        if !types.eq(self.schema.fields().iter().map(|field| field.data_type())) {
            return internal_err!(
                "row stage of {} got a batch of {}",
                self.schema,
                batch.schema()
            );
        }
        // After the first spilled row, all later rows are spilled, too, so that the number of a row
        // shows whether the row is in memory or spilled.
        let (batch, mut spill) = match self.spill.take() {
            Some(spill) => (batch, spill),
            None => {
                let batch = compacted(batch)?;
                let bytes = batch.get_array_memory_size();
                if self.reservation.try_grow(bytes).is_ok() {
                    self.ranges.push(batch.num_rows() as u64);
                    self.batches.push(self.with_own_schema(&batch)?);
                    return Ok(());
                }
                (batch, Spill::create(&self.schema, &self.space)?)
            }
        };
        let before = spill.index_bytes();
        let outcome = spill.append(&self.with_own_schema(&batch)?);
        // The index of spilled rows must be in memory, so its size is reserved even beyond the
        // limit.
        self.reservation.grow(spill.index_bytes() - before);
        self.spill = Some(spill);
        outcome
    }

    fn with_own_schema(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns().to_vec();
        let schema = Arc::clone(&self.schema);
        Ok(record_batch(schema, columns, batch.num_rows())?)
    }

    /// Returns the rows with the numbers `indices`, in this order; a number may occur several
    /// times. Blocks while spilled rows are read. Several threads may call `gather` at the same
    /// time. Fails if a number is past the last row, if the rows exceed the size of one batch, or
    /// if the temporary file cannot be read.
    pub(crate) fn gather(&self, indices: &[u64]) -> Result<RecordBatch> {
        if let Some(past) = indices.iter().find(|&&index| index >= self.rows()) {
            return internal_err!("row stage has {} rows, asked for row {past}", self.rows());
        }
        if indices.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.schema)));
        }
        if self.schema.fields().is_empty() {
            let schema = Arc::clone(&self.schema);
            return Ok(record_batch(schema, Vec::new(), indices.len())?);
        }
        let in_memory = self.ranges.end();
        let spilled: Vec<u64> = indices
            .iter()
            .filter(|&&index| index >= in_memory)
            .map(|index| index - in_memory)
            .collect();
        let spilled = match &self.spill {
            Some(spill) if !spilled.is_empty() => Some(spill.gather(&spilled)?),
            _ => None,
        };
        if let Some(only) = &spilled
            && only.num_rows() == indices.len()
        {
            return Ok(only.clone());
        }
        let mut batches: Vec<&RecordBatch> = self.batches.iter().collect();
        batches.extend(&spilled);
        let mut next_spilled = 0;
        let places: Vec<(usize, usize)> = indices
            .iter()
            .map(|&index| {
                if index >= in_memory {
                    next_spilled += 1;
                    (self.batches.len(), next_spilled - 1)
                } else {
                    self.ranges.find(index)
                }
            })
            .collect();
        let gathered = interleave_record_batch(&batches, &places)?;
        let rows = gathered.num_rows();
        if rows != indices.len() {
            return exec_err!("row stage gathered {rows} of {} rows", indices.len());
        }
        Ok(gathered)
    }
}

/// Returns `batch`, copied if its rows are a small part of larger buffers. Without a copy, the
/// whole buffers would stay in memory, and would be counted again for each slice of them.
fn compacted(batch: RecordBatch) -> Result<RecordBatch> {
    let rows_alone = batch.columns().iter().map(row_bytes);
    let rows_alone = rows_alone.fold(0, usize::saturating_add);
    if batch.get_array_memory_size() <= rows_alone.saturating_mul(2).saturating_add(SLACK_BYTES) {
        return Ok(batch);
    }
    let all = UInt64Array::from_iter_values(0..batch.num_rows() as u64);
    let copied = take_record_batch(&batch, &all)?;
    let columns = copied.columns().iter().map(|column| -> ArrayRef {
        match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()),
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
            _ => Arc::clone(column),
        }
    });
    let columns = columns.collect();
    Ok(record_batch(copied.schema(), columns, copied.num_rows())?)
}

/// Returns the number of bytes that the values of the rows of `column` take, without unused parts
/// of its buffers.
fn row_bytes(column: &ArrayRef) -> usize {
    let views = column.len() * size_of::<u128>();
    match column.data_type() {
        DataType::Utf8View => views + column.as_string_view().total_buffer_bytes_used(),
        DataType::BinaryView => views + column.as_binary_view().total_buffer_bytes_used(),
        _ => {
            let bytes = column.to_data().get_slice_memory_size();
            bytes.unwrap_or(usize::MAX)
        }
    }
}
