//! Column types as each file format stores them, so that every reader finds the values that were
//! written.
//!
//! | Type | Parquet | CSV | JSON lines | Arrow |
//! |---|---|---|---|---|
//! | dictionaries, run-end encoding, list views | plain values | plain values | plain values | plain values |
//! | `timestamp[s]`, `time32[s]` | milliseconds | text | text | unchanged |
//! | `date64` | `date32` | text | text | unchanged |
//! | durations | unchanged | unsupported | unsupported | unchanged |
//! | intervals of months, days and nanoseconds | unsupported | text | text | unchanged |
//! | lists, structs, maps | unchanged | unsupported | unchanged; map keys must be text | unchanged |
//! | unions | unsupported | unsupported | unsupported | unchanged |
//! | NaN and infinities | unchanged | text | unsupported | unchanged |
//!
//! CSV and JSON store bytes as hexadecimal digits.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Field, FieldRef, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit,
};
use arrow::error::ArrowError;
use parquet::arrow::ArrowSchemaConverter;

use super::format::TableFormat;

/// Error for a column whose type a file format cannot hold.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("column \"{column}\" has the type {data_type}, which {format} files cannot hold; {advice}")]
pub struct UnwritableColumn {
    /// Name of the column.
    pub column: String,
    /// Type of the column.
    pub data_type: DataType,
    /// Format of the file.
    pub format: TableFormat,
    /// Remedy that the message suggests.
    pub advice: String,
}

/// Returns the schema in which files of a format store columns.
///
/// # Errors
/// Fails if the format cannot hold a column.
pub(super) fn stored_schema(
    format: TableFormat,
    schema: &Schema,
) -> Result<SchemaRef, UnwritableColumn> {
    let stored = schema.fields().iter().map(|field| {
        let unwritable = |advice: String| UnwritableColumn {
            column: field.name().clone(),
            data_type: field.data_type().clone(),
            format,
            advice,
        };
        let stored = stored_field(format, field).map_err(|why| unwritable(why.to_owned()))?;
        if format == TableFormat::Parquet {
            let alone = Schema::new(vec![Arc::clone(&stored)]);
            let converted = ArrowSchemaConverter::new().convert(&alone);
            converted
                .map_err(|why| unwritable(format!("cast the column to another type: {why}")))?;
        }
        Ok(stored)
    });
    let fields = stored.collect::<Result<Fields, _>>()?;
    Ok(Arc::new(Schema::new_with_metadata(
        fields,
        schema.metadata().clone(),
    )))
}

fn stored_field(format: TableFormat, field: &FieldRef) -> Result<FieldRef, &'static str> {
    let data_type = stored_type(format, field.data_type())?;
    if data_type == *field.data_type() {
        return Ok(Arc::clone(field));
    }
    let stored = Field::new(field.name(), data_type, field.is_nullable());
    Ok(Arc::new(stored.with_metadata(field.metadata().clone())))
}

/// Returns the type in which files of a format store values of type `of`. If the format cannot hold
/// such values, the error is a remedy for the message.
fn stored_type(format: TableFormat, of: &DataType) -> Result<DataType, &'static str> {
    use TableFormat::{Arrow, Csv, Json, Parquet};
    let field = |field: &FieldRef| stored_field(format, field);
    Ok(match (format, of) {
        (_, DataType::Dictionary(_, values)) => stored_type(format, values)?,
        (_, DataType::RunEndEncoded(_, values)) => stored_type(format, values.data_type())?,
        (Arrow, DataType::Union(..)) => of.clone(),
        (_, DataType::Union(..)) => {
            return Err("write an .arrow file, or select the fields of the union as columns");
        }
        (Csv, nested) if nested.is_nested() => {
            return Err(
                "write a .parquet, .arrow or .json file, or select the parts of the value as columns",
            );
        }
        (Csv | Json, DataType::Duration(_)) => {
            return Err("write a .parquet or .arrow file, or cast the column to BIGINT");
        }
        (Parquet, DataType::Interval(IntervalUnit::MonthDayNano)) => {
            return Err("write an .arrow file, or cast the column to VARCHAR");
        }
        (Parquet, DataType::Timestamp(TimeUnit::Second, zone)) => {
            DataType::Timestamp(TimeUnit::Millisecond, zone.clone())
        }
        (Parquet, DataType::Time32(TimeUnit::Second)) => DataType::Time32(TimeUnit::Millisecond),
        (Parquet, DataType::Date64) => DataType::Date32,
        // The Parquet writer stores one-digit decimals as 64-bit integers, and accepts such
        // decimals only as Decimal64.
        (Parquet, DataType::Decimal32(1, scale)) => DataType::Decimal64(1, *scale),
        (Parquet, DataType::Struct(fields)) if fields.is_empty() => {
            return Err("a struct without fields has no values; leave it out");
        }
        (_, DataType::List(item) | DataType::ListView(item)) => DataType::List(field(item)?),
        (_, DataType::LargeList(item) | DataType::LargeListView(item)) => {
            DataType::LargeList(field(item)?)
        }
        (_, DataType::FixedSizeList(item, size)) => DataType::FixedSizeList(field(item)?, *size),
        (_, DataType::Struct(fields)) => {
            DataType::Struct(fields.iter().map(field).collect::<Result<_, _>>()?)
        }
        (_, DataType::Map(entries, sorted)) => {
            let stored = field(entries)?;
            if format == Json && !has_text_keys(stored.data_type()) {
                return Err("write a .parquet or .arrow file: keys of JSON objects are text");
            }
            DataType::Map(stored, *sorted)
        }
        _ => of.clone(),
    })
}

/// True if the keys of a map are text; `entries` is the struct type of the map's entries.
fn has_text_keys(entries: &DataType) -> bool {
    let DataType::Struct(fields) = entries else {
        return false;
    };
    fields
        .first()
        .is_some_and(|key| key.data_type() == &DataType::Utf8)
}

/// Casts a batch to `schema`, the schema in which the file stores the batch.
///
/// # Errors
/// Fails if the stored type cannot represent a value.
pub(super) fn stored_batch(
    schema: &SchemaRef,
    batch: &RecordBatch,
) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| {
        if column.data_type() == field.data_type() {
            return Ok(Arc::clone(column));
        }
        stored_column(column, field)
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

fn stored_column(column: &ArrayRef, field: &Field) -> Result<ArrayRef, ArrowError> {
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let stored = cast_with_options(column, field.data_type(), &strict)?;
    // A date64 value may contain a time of day, although Arrow forbids this, and a cast to date32
    // drops the time of day. To detect this, the values are compared with the values cast back,
    // both without dictionary or run-end encoding.
    if has_dates(column.data_type()) {
        let plain = stored_type(TableFormat::Arrow, column.data_type());
        let plain = plain.map_err(|why| ArrowError::InvalidArgumentError(why.to_owned()))?;
        let values = cast_with_options(column, &plain, &strict)?;
        let again = cast_with_options(&stored, &plain, &strict)?;
        if again.to_data() != values.to_data() {
            return Err(ArrowError::InvalidArgumentError(format!(
                "column \"{}\": a date has a time of day, which Parquet files do not hold; cast the column to TIMESTAMP",
                field.name()
            )));
        }
    }
    Ok(stored)
}

/// True if a type contains 64-bit dates.
fn has_dates(of: &DataType) -> bool {
    match of {
        DataType::Date64 => true,
        DataType::Dictionary(_, values) => has_dates(values),
        DataType::RunEndEncoded(_, item)
        | DataType::List(item)
        | DataType::ListView(item)
        | DataType::LargeList(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => has_dates(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_dates(field.data_type())),
        _ => false,
    }
}
