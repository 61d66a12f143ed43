//! Joins the batches of a stage, because a row of one array is found quicker than one of many.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::concat;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use rayon::prelude::*;

use crate::record_batch::record_batch;

/// Mean size of a row in bytes from which copying it takes longer than finding it.
const MAX_ROW_BYTES: usize = 256;
/// Size of a column in bytes up to which its offsets fit their type.
const MAX_COLUMN_BYTES: usize = 1 << 30;

/// Returns true if `batches`, whose columns are [simple](is_simple), gain from being joined, and fit
/// into one batch.
pub(super) fn is_worth(batches: &[RecordBatch]) -> bool {
    let [first, _, ..] = batches else {
        return false;
    };
    let sizes = (0..first.num_columns()).map(|column| {
        let arrays = batches.iter().map(|batch| batch.column(column));
        arrays
            .map(|array| array.get_array_memory_size())
            .sum::<usize>()
    });
    let (mut all, mut largest) = (0, 0);
    for size in sizes {
        all += size;
        largest = largest.max(size);
    }
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    largest <= MAX_COLUMN_BYTES && all / rows.max(1) <= MAX_ROW_BYTES
}

/// Returns true if an array of this type has one buffer of values, and no children.
pub(super) fn is_simple(data_type: &DataType) -> bool {
    data_type.is_primitive()
        || matches!(
            data_type,
            DataType::Boolean | DataType::Utf8 | DataType::Binary
        )
}

/// Returns one batch with the rows of all `batches`, of which there is at least one. Works on the
/// threads of the current rayon pool.
pub(super) fn joined(batches: &[RecordBatch]) -> Result<RecordBatch> {
    let (schema, columns) = (batches[0].schema(), batches[0].num_columns());
    let columns = (0..columns).into_par_iter().map(|column| {
        let arrays: Vec<&dyn Array> = { batches.iter() }
            .map(|batch| batch.column(column).as_ref())
            .collect();
        concat(&arrays)
    });
    let columns = columns.collect::<std::result::Result<Vec<ArrayRef>, _>>()?;
    let rows = batches.iter().map(RecordBatch::num_rows).sum();
    Ok(record_batch(schema, columns, rows)?)
}
