//! Values that a Python function gave, as Arrow arrays.
//!
//! `forebay/_results.py` has checked them and hands over, by the column's kind: `("arrow", array)`,
//! `("dense", bytes, mask)`, `("text", list)`, `("bytes", list)`, `("list", offsets, mask, items)`. A mask has a
//! byte for each row, 1 where it is null.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayDataBuilder, ArrayRef, BinaryArray, BooleanArray, ListArray, StringArray,
    make_array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::PyArray;

use crate::column::arrow_error;
use crate::udf_type::named;

/// Builds a column of `rows` rows.
pub(crate) fn build(field: &Field, rows: usize, parts: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let parts = parts.cast::<PyTuple>()?;
    let kind: String = parts.get_item(0)?.extract()?;
    let array: ArrayRef = match (kind.as_str(), field.data_type()) {
        ("arrow", _) => parts.get_item(1)?.extract::<PyArray>()?.into_inner().0,
        ("text", _) => {
            let texts: Vec<Option<String>> = parts.get_item(1)?.extract()?;
            Arc::new(StringArray::from(texts))
        }
        ("bytes", _) => {
            let values: Vec<Option<Vec<u8>>> = parts.get_item(1)?.extract()?;
            let values = values.iter().map(Option::as_deref);
            Arc::new(BinaryArray::from_iter(values))
        }
        ("list", DataType::List(item)) => {
            let offsets: Vec<i32> = parts.get_item(1)?.extract()?;
            let count = offsets
                .last()
                .map_or(0, |&n| usize::try_from(n).unwrap_or(0));
            let items = build(item, count, &parts.get_item(3)?)?;
            let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
            let nulls = nulls(&parts.get_item(2)?)?;
            let list = ListArray::try_new(Arc::clone(item), offsets, items, nulls);
            Arc::new(list.map_err(arrow_error)?)
        }
        ("dense", data_type) => {
            let bytes = parts.get_item(1)?;
            dense(
                data_type,
                rows,
                bytes.extract()?,
                nulls(&parts.get_item(2)?)?,
            )?
        }
        (other, _) => return Err(PyValueError::new_err(format!("no values are {other:?}"))),
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
        return Ok(array);
    }
    // Names and nullability of what is inside are the declared ones.
    arrow::compute::cast(&array, field.data_type()).map_err(arrow_error)
}

fn nulls(mask: &Bound<'_, PyAny>) -> PyResult<Option<NullBuffer>> {
    let mask: Option<Vec<u8>> = mask.extract()?;
    let valid = |mask: Vec<u8>| mask.iter().map(|&null| null == 0).collect::<Vec<_>>();
    Ok(mask.map(|mask| NullBuffer::from(valid(mask))))
}

fn dense(
    data_type: &DataType,
    rows: usize,
    bytes: &[u8],
    nulls: Option<NullBuffer>,
) -> PyResult<ArrayRef> {
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
