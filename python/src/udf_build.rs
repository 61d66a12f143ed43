//! Values that a Python function gave, as Arrow arrays.
//!
//! `forebay/_results.py` has taken them apart and hands over, by column: `("arrow", array)`, `("dense", bytes, mask)`,
//! or `("values", list)`, whose values are checked here one by one. A mask has a byte for each row, 1 where it is null.

use std::sync::Arc;

use arrow::array::{Array, ArrayDataBuilder, ArrayRef, BooleanArray, make_array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::{DataType, Field};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::PyArray;

use crate::column::arrow_error;
use crate::udf_type::named;
use crate::udf_values::{self, WrongRows};

/// Builds a column of `rows` rows, and says which of them hold values that are none of its type.
pub(crate) fn build(
    field: &Field,
    rows: usize,
    parts: &Bound<'_, PyAny>,
) -> PyResult<(ArrayRef, WrongRows)> {
    let parts = parts.cast::<PyTuple>()?;
    let kind: String = parts.get_item(0)?.extract()?;
    let mut wrong = WrongRows::new();
    let array: ArrayRef = match kind.as_str() {
        "arrow" => parts.get_item(1)?.extract::<PyArray>()?.into_inner().0,
        "values" => {
            let (array, found) = udf_values::column(field, &parts.get_item(1)?)?;
            wrong = found;
            array
        }
        "dense" => {
            let bytes = parts.get_item(1)?;
            let mask = parts.get_item(2)?.extract()?;
            dense(field.data_type(), rows, bytes.extract()?, mask)?
        }
        other => return Err(PyValueError::new_err(format!("no values are {other:?}"))),
    };
    let found = array.data_type();
    if !found.equals_datatype(field.data_type()) {
        let found = Field::new("", found.clone(), true);
        return Err(PyValueError::new_err(format!(
            "expected {}, found {}",
            named(field),
            named(&found)
        )));
    }
    if array.len() != rows {
        return Err(PyValueError::new_err(format!(
            "expected {rows} rows, found {}",
            array.len()
        )));
    }
    if found == field.data_type() {
        return Ok((array, wrong));
    }
    // Names and nullability of what is inside are the declared ones.
    let array = arrow::compute::cast(&array, field.data_type()).map_err(arrow_error)?;
    Ok((array, wrong))
}

/// Elements of one shape as NumPy has them in memory, and which rows are null.
pub(crate) fn dense(
    data_type: &DataType,
    rows: usize,
    bytes: &[u8],
    mask: Option<Vec<u8>>,
) -> PyResult<ArrayRef> {
    let valid = |mask: Vec<u8>| mask.iter().map(|&null| null == 0).collect::<Vec<_>>();
    let nulls = mask.map(|mask| NullBuffer::from(valid(mask)));
    if let DataType::Boolean = data_type {
        let flags: Vec<bool> = bytes.iter().map(|&b| b != 0).collect();
        return Ok(Arc::new(BooleanArray::new(flags.into(), nulls)));
    }
    // The copy is aligned, and nobody else's.
    let buffer = Buffer::from_slice_ref(bytes);
    let builder = ArrayDataBuilder::new(data_type.clone())
        .len(rows)
        .nulls(nulls);
    let builder = match data_type {
        DataType::FixedSizeList(item, size) => {
            let elements = rows * usize::try_from(*size).unwrap_or(0);
            let items = ArrayDataBuilder::new(item.data_type().clone())
                .len(elements)
                .add_buffer(buffer);
            builder.add_child_data(items.build().map_err(arrow_error)?)
        }
        _ => builder.add_buffer(buffer),
    };
    Ok(make_array(builder.build().map_err(arrow_error)?))
}
