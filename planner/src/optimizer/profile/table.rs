//! Functions over record batches of profiled rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema};

/// Mean bytes per row of a column.
pub(super) fn row_bytes(values: &ArrayRef) -> u64 {
    let all = values.to_data().get_slice_memory_size().unwrap_or(0);
    (all / values.len().max(1)) as u64
}

pub(super) fn batch(columns: Vec<(String, ArrayRef, Field)>, rows: usize) -> Option<RecordBatch> {
    let mut fields = Vec::with_capacity(columns.len());
    let mut values = Vec::with_capacity(columns.len());
    for (name, column, field) in columns {
        // A row on which evaluation raised an error has no value, so the column is nullable, even
        // if the plan declares the column not null.
        fields.push(field.with_name(name).with_nullable(true));
        values.push(column);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), values, &options).ok()
}

/// Replaces the column `name` of `rows`, or adds a column `name` if `rows` has none.
pub(super) fn with_column(
    rows: &RecordBatch,
    name: &str,
    field: Field,
    values: ArrayRef,
) -> Option<RecordBatch> {
    let schema = rows.schema();
    let pairs = schema.fields().iter().zip(rows.columns());
    let others = pairs.filter(|(field, _)| field.name() != name);
    let mut columns: Vec<(String, ArrayRef, Field)> = others
        .map(|(f, c)| (f.name().clone(), Arc::clone(c), f.as_ref().clone()))
        .collect();
    columns.push((name.to_owned(), values, field));
    batch(columns, rows.num_rows())
}
