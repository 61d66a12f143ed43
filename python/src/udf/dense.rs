//! Builds Arrow arrays from elements in NumPy's memory layout.

use std::sync::Arc;

use arrow::array::{ArrayDataBuilder, ArrayRef, BooleanArray, make_array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::DataType;
use pyo3::prelude::*;

use crate::column::arrow_error;

/// Builds an array of `rows` values of one shape from the bytes of their elements. `mask` has one
/// byte per row: 1 if the row is null, else 0.
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
    // The bytes are copied, so that the buffer is aligned and not shared.
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
