//! The row stage, which holds the rows of a window and returns them in any order.

mod error;
mod join;
mod packed;
mod packed_rows;
mod ranges;
mod space;
mod spill;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt64Array};
use arrow::compute::{concat_batches, interleave_record_batch, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

use crate::record_batch::record_batch;
pub use error::SpillError;
pub(crate) use join::StagePart;
use join::{JOINED_SIZE, JoinedRows};
pub(crate) use packed_rows::PackedRows;
use packed_rows::{PackedSplits, is_packed};
use ranges::RowRanges;
pub(crate) use space::SpillSpace;
use spill::Spill;

/// Number of bytes by which the buffers of a batch may exceed twice the size of its rows; a batch
/// with larger buffers is copied.
const SLACK_BYTES: usize = 64 << 10;
/// Size in bytes from which the batches of a stage are joined. Smaller stages lie in the processor's
/// cache, where rows of many batches are found as quickly.
const JOINED_BYTES: usize = 8 << 20;
/// Mean number of consecutive rows from which slices of batches are quicker than single rows.
const PIECE_ROWS: usize = 64;

/// Store for rows, which returns them in any order. Rows are held in memory while the pool grants
/// memory, then in a temporary file.
///
/// Rows are numbered from 0 in the order of insertion. Packed rows have numbers of their own, with the highest bit
/// set. Returned rows equal the inserted rows bit for bit, with the same types. The temporary file has no name, so the system removes it when the
/// process ends.
#[derive(Debug)]
pub(crate) struct RowStage {
    schema: SchemaRef,
    reservation: MemoryReservation,
    space: Arc<SpillSpace>,
    batches: Vec<RecordBatch>,
    /// The rows in memory, once they are joined; then `batches` is empty.
    joined: Option<JoinedRows>,
    /// Splits whose rows are packed, and are not in `batches`.
    packed: PackedSplits,
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
            joined: None,
            packed: PackedSplits::default(),
            ranges: RowRanges::default(),
            spill: None,
        }
    }

    /// Returns true if batches of the stage's rows can be concatenated. Arrow panics where the offsets
    /// of lists overflow, whose elements need not take memory.
    pub(crate) fn is_simple(&self) -> bool {
        let mut fields = self.schema.fields().iter();
        fields.all(|field| join::is_simple(field.data_type()))
    }

    /// Returns the number of rows that are not packed, or of places if the rows were spread to places. The next
    /// row that is pushed has this number.
    pub(crate) fn rows(&self) -> u64 {
        match &self.joined {
            Some(joined) => joined.rows() as u64,
            None => self.ranges.end() + self.spilled_rows(),
        }
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
        if self.joined.is_some() {
            return internal_err!("the rows of a stage were joined before the last one was pushed");
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

    /// Returns the batches with the rows from number `first` on; `None` if some of them were spilled.
    pub(crate) fn batches_from(&self, first: u64) -> Option<&[RecordBatch]> {
        if self.spill.is_some() {
            return None;
        }
        let is_past = first >= self.ranges.end();
        let from = if is_past {
            self.batches.len()
        } else {
            self.ranges.find(first).0
        };
        Some(&self.batches[from..])
    }

    /// Returns the memory that the rows from number `first`, which begins a batch, to the last one take when they are
    /// packed, in bytes; `None` if they cannot be packed.
    pub(crate) fn packed_bytes(&self, first: u64) -> Option<usize> {
        PackedRows::bytes_of(self.batches_from(first)?)
    }

    /// Packs the rows from number `first`, which begins a batch, to the last one, if memory for a copy is left. Works
    /// on the threads of the current rayon pool. Returns the packed rows and the new number of the first row, which
    /// the other numbers follow; `None` if the rows keep their numbers.
    pub(crate) fn pack(&mut self, first: u64) -> Option<(Arc<PackedRows>, u64)> {
        let batches = self.batches_from(first)?;
        let bytes = batches.iter().map(RecordBatch::get_array_memory_size);
        let bytes: usize = bytes.sum();
        self.reservation
            .try_grow(PackedRows::bytes_of(batches)?)
            .ok()?;
        let packed = Arc::new(PackedRows::of(batches)?);
        let kept = self.batches.len() - batches.len();
        self.batches.truncate(kept);
        self.ranges.truncate(kept);
        self.reservation.shrink(bytes);
        let base = self.packed.push(Arc::clone(&packed));
        Some((packed, base))
    }

    /// Appends packed rows of the stage's schema, and returns the number of the first row, which the other numbers
    /// follow. Spills the rows if the pool grants no memory for them, and fails as [`push`](Self::push) does.
    pub(crate) fn push_packed(&mut self, rows: &Arc<PackedRows>) -> Result<u64> {
        if self.reservation.try_grow(rows.memory_size()).is_ok() {
            return Ok(self.packed.push(Arc::clone(rows)));
        }
        let base = self.rows();
        self.push(rows.to_batch(&self.schema)?)?;
        Ok(base)
    }

    /// Returns true if [`join`](Self::join) makes later calls of [`gather`](Self::gather) quicker.
    pub(crate) fn gains_from_join(&self) -> bool {
        self.spill.is_none()
            && self.packed.is_empty()
            && self.is_simple()
            && self.reserved_bytes() >= JOINED_BYTES
            && join::is_worth(&self.batches)
    }

    /// Returns the memory that the rows take at most once they are joined, in bytes.
    pub(crate) fn joined_bytes(&self) -> usize {
        JOINED_SIZE.saturating_mul(self.reserved_bytes())
    }

    /// Joins the batches, whose rows are those of `parts`, if no row was spilled and memory for a copy
    /// is left; no rows can be pushed then. Works on the threads of the current rayon pool.
    ///
    /// Returns true if rows are now numbered by their places in the parts.
    pub(crate) fn join(&mut self, parts: &[StagePart]) -> Result<bool> {
        let is_held = self.spill.is_none() && self.packed.is_empty() && !self.batches.is_empty();
        if !is_held || self.reservation.try_grow(self.joined_bytes()).is_err() {
            return Ok(false);
        }
        let joined = JoinedRows::of(&self.batches, parts)?;
        self.reservation.resize(joined.memory_size());
        self.batches = Vec::new();
        self.ranges = RowRanges::default();
        let is_spread = joined.is_spread;
        self.joined = Some(joined);
        Ok(is_spread)
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
        let has_packed = !self.packed.is_empty();
        let is_past = |index: u64| index >= self.rows() && !(has_packed && is_packed(index));
        if let Some(past) = indices.iter().find(|&&index| is_past(index)) {
            return internal_err!("row stage has {} rows, asked for row {past}", self.rows());
        }
        if indices.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.schema)));
        }
        if self.schema.fields().is_empty() {
            let schema = Arc::clone(&self.schema);
            return Ok(record_batch(schema, Vec::new(), indices.len())?);
        }
        if let Some(joined) = &self.joined {
            return joined.take(indices, &self.schema);
        }
        let packed = self.packed_rows(indices)?;
        if let Some(packed) = &packed
            && packed.num_rows() == indices.len()
        {
            return Ok(packed.clone());
        }
        if let Some(pieces) = self.pieces(indices) {
            return match &pieces[..] {
                // A slice would keep the whole buffers alive after the stage was dropped.
                [only] => copied(only),
                _ => Ok(concat_batches(&self.schema, &pieces)?),
            };
        }
        if let ([only], None, None) = (&self.batches[..], &self.spill, &packed) {
            let rows = UInt64Array::from_iter_values(indices.iter().copied());
            return Ok(take_record_batch(only, &rows)?);
        }
        let in_memory = self.ranges.end();
        let spilled: Vec<u64> = indices
            .iter()
            .filter(|&&index| index >= in_memory && !is_packed(index))
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
        batches.extend(spilled.iter().chain(&packed));
        // Rows that are not in `self.batches` follow one another in the last batches.
        let last = batches.len().saturating_sub(1);
        let (mut next_spilled, mut next_packed) = (0, 0);
        let places = indices.iter().map(|&index| {
            if index < in_memory {
                self.ranges.find(index)
            } else if is_packed(index) {
                next_packed += 1;
                (last, next_packed - 1)
            } else {
                next_spilled += 1;
                (self.batches.len(), next_spilled - 1)
            }
        });
        let places: Vec<(usize, usize)> = places.collect();
        let gathered = interleave_record_batch(&batches, &places)?;
        let rows = gathered.num_rows();
        if rows != indices.len() {
            return exec_err!("row stage gathered {rows} of {} rows", indices.len());
        }
        Ok(gathered)
    }

    /// Returns those of the rows `indices` that are packed; `None` if none is.
    fn packed_rows(&self, indices: &[u64]) -> Result<Option<RecordBatch>> {
        if self.packed.is_empty() {
            return Ok(None);
        }
        let all = indices.iter().all(|&index| is_packed(index));
        let numbers: Cow<'_, [u64]> = if all {
            indices.into()
        } else {
            let packed = indices.iter().copied().filter(|&index| is_packed(index));
            packed.collect()
        };
        let is_any = !numbers.is_empty();
        is_any
            .then(|| self.packed.take(&numbers, &self.schema))
            .transpose()
    }

    /// Returns the rows `indices` as slices of the batches in memory; `None` if some rows were
    /// spilled, if too few rows follow one another, or if slices cannot be concatenated.
    fn pieces(&self, indices: &[u64]) -> Option<Vec<RecordBatch>> {
        let most = indices.len() / PIECE_ROWS;
        let runs = || indices.chunk_by(|a, b| a + 1 == *b);
        if runs().nth(most).is_some() || !self.is_simple() {
            return None;
        }
        let mut pieces = Vec::new();
        for run in runs() {
            let (mut first, end) = (run[0], run[run.len() - 1] + 1);
            if end > self.ranges.end() {
                return None;
            }
            while first < end {
                if pieces.len() == most {
                    return None;
                }
                let (batch, offset) = self.ranges.find(first);
                let batch = &self.batches[batch];
                let rows = (batch.num_rows() - offset).min((end - first) as usize);
                pieces.push(batch.slice(offset, rows));
                first += rows as u64;
            }
        }
        Some(pieces)
    }
}

/// Returns a batch with the rows of `batch` and buffers of its own.
fn copied(batch: &RecordBatch) -> Result<RecordBatch> {
    let all = UInt64Array::from_iter_values(0..batch.num_rows() as u64);
    Ok(take_record_batch(batch, &all)?)
}

/// Returns `batch`, copied if its rows are a small part of larger buffers. Without a copy, the
/// whole buffers would stay in memory, and would be counted again for each slice of them.
fn compacted(batch: RecordBatch) -> Result<RecordBatch> {
    let rows_alone = batch.columns().iter().map(row_bytes);
    let rows_alone = rows_alone.fold(0, usize::saturating_add);
    if batch.get_array_memory_size() <= rows_alone.saturating_mul(2).saturating_add(SLACK_BYTES) {
        return Ok(batch);
    }
    let copied = copied(&batch)?;
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
