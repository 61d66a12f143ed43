//! Collects the fields of CSV records as columns of text, and converts these columns to their
//! types.

use std::path::Path;
use std::sync::Arc;

use arrow::array::builder::StringBuilder;
use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::common::Result;

use super::super::error::SourceError;
use super::records::Record;
use super::shape::{CsvShape, FORMAT};

/// Builds a batch of typed columns from the fields of CSV records.
pub(super) struct TextColumns<'a> {
    shape: &'a CsvShape,
    schema: &'a SchemaRef,
    path: &'a Path,
    text: Vec<StringBuilder>,
    /// Line in the file at which each row ends.
    pub(super) lines: Vec<u64>,
}

impl<'a> TextColumns<'a> {
    pub(super) fn new(shape: &'a CsvShape, schema: &'a SchemaRef, path: &'a Path) -> Self {
        let text = schema
            .fields()
            .iter()
            .map(|_| StringBuilder::new())
            .collect();
        Self {
            shape,
            schema,
            path,
            text,
            lines: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, record: &Record<'_>, projection: &[usize]) {
        let fields = self.schema.fields().iter();
        for ((builder, field), &column) in self.text.iter_mut().zip(fields).zip(projection) {
            let value = record.field(column);
            let null = self.shape.is_null(value, field.data_type());
            builder.append_option((!null).then_some(value));
        }
        self.lines.push(record.line);
    }

    pub(super) fn finish(&mut self) -> Result<RecordBatch> {
        let lines = std::mem::take(&mut self.lines);
        let columns = self
            .text
            .iter_mut()
            .zip(self.schema.fields())
            .map(|(builder, field)| typed(&builder.finish(), field, &lines, self.path))
            .collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(lines.len()));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(self.schema),
            columns,
            &options,
        )?)
    }
}

/// Converts a column of text to the type of `field`. The error names the line of the first value
/// that cannot be converted.
fn typed(text: &StringArray, field: &Field, lines: &[u64], path: &Path) -> Result<ArrayRef> {
    let damaged = |cause: String| SourceError::damaged(path, FORMAT, cause);
    if !field.is_nullable()
        && let Some(row) = (0..text.len()).find(|&row| text.is_null(row))
    {
        let cause = format!(
            "line {}, column '{}': null in a column declared NOT NULL",
            lines[row],
            field.name()
        );
        return Err(damaged(cause).into());
    }
    if field.data_type() == &DataType::Utf8 {
        return Ok(Arc::new(text.clone()));
    }
    let lenient = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    let values = cast_with_options(text, field.data_type(), &lenient)?;
    if values.null_count() > text.null_count()
        && let Some(row) = (0..text.len()).find(|&row| values.is_null(row) && text.is_valid(row))
    {
        let value: String = text.value(row).chars().take(60).collect();
        return Err(damaged(format!(
            "line {}, column '{}': '{value}' is not a value of type {} (declare the column's type, or raise the option infer_rows)",
            lines[row],
            field.name(),
            field.data_type()
        ))
        .into());
    }
    Ok(values)
}
