//! The row stage: the rows of one shuffle window, given back in any order.

mod space;
mod spill;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::{interleave_record_batch, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

pub use space::SpillSpace;
use spill::Spill;

/// Slack that a batch may hold above its rows before it is copied to hold them alone.
const SLACK_BYTES: usize = 64 << 10;

/// Holds rows in memory while the pool grants it and in a temporary file beyond, and gives them
/// back in any order.
///
/// Rows are numbered from 0 in the order that they were pushed. What comes back has the same
/// values, bit for bit, and the same types. The file has no name, so nothing outlives the process.
#[derive(Debug)]
pub struct RowStage {
    schema: SchemaRef,
    reservation: MemoryReservation,
    space: Arc<SpillSpace>,
    batches: Vec<RecordBatch>,
    /// Number of the first row of each batch.
    starts: Vec<u64>,
    /// Rows in `batches`; the spilled ones follow.
    in_memory: u64,
    spill: Option<Spill>,
}

impl RowStage {
    /// An empty stage for rows of `schema`, which takes memory from `pool` and, when that is
    /// exhausted, files from `space`.
    pub fn new(schema: SchemaRef, pool: &Arc<dyn MemoryPool>, space: Arc<SpillSpace>) -> Self {
        let reservation = MemoryConsumer::new("row stage")
            .with_can_spill(true)
            .register(pool);
        Self {
            schema,
            reservation,
            space,
            batches: Vec::new(),
            starts: Vec::new(),
            in_memory: 0,
            spill: None,
        }
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows pushed so far.
    pub fn rows(&self) -> u64 {
        self.in_memory + self.spilled_rows()
    }

    /// Rows that are in the temporary file.
    pub fn spilled_rows(&self) -> u64 {
        self.spill.as_ref().map_or(0, Spill::rows)
    }

    /// Bytes of the temporary file.
    pub fn spilled_bytes(&self) -> u64 {
        self.spill.as_ref().map_or(0, Spill::bytes)
    }

    /// Bytes taken from the memory pool.
    pub fn reserved_bytes(&self) -> usize {
        self.reservation.size()
    }

    /// Appends rows. Blocks when it spills. Errors: a full disk, temporary files switched off,
    /// columns of other types than the schema's.
    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
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
        // Once rows are spilled all later ones are, so that the row number says where a row is.
        if self.spill.is_none() {
            let batch = compacted(batch)?;
            if self
                .reservation
                .try_grow(batch.get_array_memory_size())
                .is_ok()
            {
                self.starts.push(self.in_memory);
                self.in_memory += batch.num_rows() as u64;
                self.batches.push(self.with_own_schema(&batch)?);
                return Ok(());
            }
            let spill = Spill::create(&self.schema, &self.space)?;
            return self.append(spill, &batch);
        }
        match self.spill.take() {
            Some(spill) => self.append(spill, &batch),
            None => internal_err!("the row stage lost its file"),
        }
    }

    fn append(&mut self, mut spill: Spill, batch: &RecordBatch) -> Result<()> {
        let batch = self.with_own_schema(batch)?;
        let before = spill.index_bytes();
        let outcome = spill.append(&batch);
        // The index of spilled rows has nowhere else to go.
        self.reservation.grow(spill.index_bytes() - before);
        self.spill = Some(spill);
        outcome
    }

    fn with_own_schema(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().to_vec();
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns,
            &options,
        )?)
    }

    /// The rows with these numbers, in this order; a number may come more than once. Blocks when
    /// rows are spilled. May be called from several threads at once. Errors: a number past the end,
    /// more bytes than one batch can hold, a temporary file that cannot be read.
    pub fn gather(&self, indices: &[u64]) -> Result<RecordBatch> {
        if let Some(past) = indices.iter().find(|&&index| index >= self.rows()) {
            return internal_err!("row stage has {} rows, asked for row {past}", self.rows());
        }
        if indices.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.schema)));
        }
        if self.schema.fields().is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(indices.len()));
            let schema = Arc::clone(&self.schema);
            return Ok(RecordBatch::try_new_with_options(schema, vec![], &options)?);
        }
        let spilled: Vec<u64> = indices
            .iter()
            .filter(|&&index| index >= self.in_memory)
            .map(|index| index - self.in_memory)
            .collect();
        let spilled = match &self.spill {
            Some(spill) if !spilled.is_empty() => Some(spill.gather(&spilled)?),
            _ => None,
        };
        if let Some(only) = spilled
            .as_ref()
            .filter(|batch| batch.num_rows() == indices.len())
        {
            return Ok(only.clone());
        }
        let mut batches: Vec<&RecordBatch> = self.batches.iter().collect();
        batches.extend(&spilled);
        let mut next_spilled = 0;
        let places: Vec<(usize, usize)> = indices
            .iter()
            .map(|&index| {
                if index >= self.in_memory {
                    next_spilled += 1;
                    (self.batches.len(), next_spilled - 1)
                } else {
                    let batch = self.starts.partition_point(|&start| start <= index) - 1;
                    (batch, (index - self.starts[batch]) as usize)
                }
            })
            .collect();
        let gathered = interleave_record_batch(&batches, &places)?;
        if gathered.num_rows() == indices.len() {
            Ok(gathered)
        } else {
            exec_err!(
                "row stage gathered {} of {} rows",
                gathered.num_rows(),
                indices.len()
            )
        }
    }
}

/// A batch that holds little more than its rows: a slice of a larger batch is copied, or the larger
/// one would stay in memory and count again with each slice.
fn compacted(batch: RecordBatch) -> Result<RecordBatch> {
    let views = |column: &ArrayRef| {
        matches!(
            column.data_type(),
            DataType::Utf8View | DataType::BinaryView
        )
    };
    let mut rows_alone = 0usize;
    for column in batch.columns() {
        let bytes = if views(column) {
            view_bytes(column)
        } else {
            column
                .to_data()
                .get_slice_memory_size()
                .unwrap_or(usize::MAX)
        };
        rows_alone = rows_alone.saturating_add(bytes);
    }
    if batch.get_array_memory_size() <= rows_alone.saturating_mul(2).saturating_add(SLACK_BYTES) {
        return Ok(batch);
    }
    let all = UInt64Array::from_iter_values(0..batch.num_rows() as u64);
    let copied = take_record_batch(&batch, &all)?;
    let columns = copied
        .columns()
        .iter()
        .map(|column| match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()) as ArrayRef,
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()) as ArrayRef,
            _ => Arc::clone(column),
        })
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(copied.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        copied.schema(),
        columns,
        &options,
    )?)
}

/// Bytes that the values of a column of views need.
fn view_bytes(column: &ArrayRef) -> usize {
    const VIEW: usize = size_of::<u128>();
    let payload = match column.data_type() {
        DataType::Utf8View => column.as_string_view().total_buffer_bytes_used(),
        DataType::BinaryView => column.as_binary_view().total_buffer_bytes_used(),
        _ => 0,
    };
    column.len() * VIEW + payload
}
