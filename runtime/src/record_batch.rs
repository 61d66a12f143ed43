//! Record batches that may have no columns, and the size of the rows of a batch.

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

/// Creates a record batch of `rows` rows, which may have no columns.
pub(crate) fn record_batch(
    schema: SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options)
}

/// Returns the memory that the rows of `batch` take, in bytes, without the other rows of its buffers.
pub fn batch_bytes(batch: &RecordBatch) -> u64 {
    let bytes = |c: &ArrayRef| c.to_data().get_slice_memory_size().unwrap_or(0) as u64;
    batch.columns().iter().map(bytes).sum()
}
