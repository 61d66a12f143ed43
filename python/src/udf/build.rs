//! Converts the values of a Python function to Arrow arrays.
//!
//! `forebay/_results.py` passes each column as `("arrow", array)`, `("dense", bytes, mask)`, or
//! `("values", list)`. The values of such a list are checked here one by one. A mask has one byte
//! per row: 1 if the row is null, else 0.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::Field;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::PyArray;

use super::dense::dense;
use super::types::named;
use super::values::{self, WrongRows};
use crate::column::arrow_error;

/// Builds a column of `rows` rows. Also returns the rows whose values have another type than
/// declared; these rows are null.
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
            let (array, found) = values::column(field, &parts.get_item(1)?)?;
            wrong = found;
            array
        }
        "dense" => {
            let bytes = parts.get_item(1)?;
            let mask = parts.get_item(2)?.extract()?;
            dense(field.data_type(), rows, bytes.extract()?, mask)?
        }
        other => {
            return Err(PyValueError::new_err(format!(
                "unknown kind of values {other:?}"
            )));
        }
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
    // The cast changes only the names and nullability of nested fields to those of the declared
    // type.
    let array = arrow::compute::cast(&array, field.data_type()).map_err(arrow_error)?;
    Ok((array, wrong))
}
