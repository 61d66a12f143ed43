//! Row-by-row access to the arguments of a call.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

/// The arguments of a call, readable row by row.
pub(super) struct Arguments {
    pub(super) arrays: Vec<ArrayRef>,
    /// Number of rows of the batch; one if all arguments are constants.
    pub(super) rows: usize,
}

impl Arguments {
    pub(super) fn of(args: &ScalarFunctionArgs) -> Result<Self> {
        let is_constant = |arg: &ColumnarValue| matches!(arg, ColumnarValue::Scalar(_));
        let rows = if args.args.iter().all(is_constant) {
            1
        } else {
            args.number_rows
        };
        let arrays = args.args.iter().map(|arg| match arg {
            ColumnarValue::Array(array) => Ok(Arc::clone(array)),
            ColumnarValue::Scalar(value) => value.to_array(),
        });
        Ok(Self {
            arrays: arrays.collect::<Result<_>>()?,
            rows,
        })
    }

    /// Returns the array of `argument` and the index of `row` in that array; `None` if the argument
    /// is absent or null.
    pub(super) fn valid(&self, argument: usize, row: usize) -> Option<(&ArrayRef, usize)> {
        let array = self.arrays.get(argument)?;
        let row = if array.len() == 1 { 0 } else { row };
        (row < array.len() && array.is_valid(row)).then_some((array, row))
    }

    /// Returns an argument as a whole number; `None` if the argument is absent, null or of another
    /// type.
    pub(super) fn int(&self, argument: usize, row: usize) -> Option<i64> {
        let (array, row) = self.valid(argument, row)?;
        let array = array.as_primitive_opt::<Int64Type>()?;
        Some(array.value(row))
    }

    pub(super) fn text(&self, argument: usize, row: usize) -> Option<&str> {
        let (array, row) = self.valid(argument, row)?;
        match array.data_type() {
            DataType::Utf8 => Some(array.as_string::<i32>().value(row)),
            DataType::LargeUtf8 => Some(array.as_string::<i64>().value(row)),
            DataType::Utf8View => Some(array.as_string_view().value(row)),
            _ => None,
        }
    }

    /// Size, in bytes, of the value of `argument` in `row`, which may be null.
    pub(super) fn bytes(&self, argument: usize, row: usize) -> u64 {
        match self.valid(argument, row) {
            Some((array, row)) => value_bytes(array, row, 1),
            None => {
                let array = self.arrays.get(argument);
                array.map_or(8, |array| null_bytes(array.data_type()))
            }
        }
    }
}

/// Size, in bytes, of `rows` consecutive values of an array, from `row` on.
pub(super) fn value_bytes(array: &ArrayRef, row: usize, rows: usize) -> u64 {
    if let Some(width) = array.data_type().primitive_width() {
        return (width as u64).saturating_mul(rows as u64);
    }
    let slice = array.slice(row, rows).to_data();
    slice.get_slice_memory_size().unwrap_or(usize::MAX) as u64
}

/// Size, in bytes, of a null of type `data_type`. A null of a type of fixed width occupies that
/// width.
pub(super) fn null_bytes(data_type: &DataType) -> u64 {
    match data_type {
        DataType::FixedSizeBinary(size) => u64::try_from(*size).unwrap_or(0),
        DataType::FixedSizeList(item, size) => {
            let size = u64::try_from(*size).unwrap_or(0);
            null_bytes(item.data_type()).saturating_mul(size)
        }
        DataType::Struct(fields) => fields
            .iter()
            .map(|field| null_bytes(field.data_type()))
            .fold(0, u64::saturating_add),
        other => other.primitive_width().unwrap_or(8) as u64,
    }
}

/// Converts a number to a count; a negative number counts as 0.
pub(super) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
