//! The return types of Python functions: the names of types, and the transfer format of their
//! values.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use forebay_udfs::tensor::{EXTENSION_METADATA, EXTENSION_NAME, FIXED_SHAPE};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyTuple};
use pyo3_arrow::PyField;

use crate::dtype::{data_type, element, tensor_shape};

/// Reads a column's type: an object with Arrow's C interface, or a name such as `float32`,
/// `list<int32>`, `tensor<float32>[3,224,224]`.
pub(crate) fn read(name: &str, kind: &Bound<'_, PyAny>) -> PyResult<Field> {
    if let Ok(text) = kind.extract::<String>() {
        return parse(name, text.trim());
    }
    let field = kind.extract::<PyField>()?.into_inner();
    Ok(field.as_ref().clone().with_name(name).with_nullable(true))
}

fn parse(name: &str, text: &str) -> PyResult<Field> {
    if let Some(inner) = text.strip_prefix("list<").and_then(|t| t.strip_suffix('>')) {
        let item = Arc::new(parse("item", inner.trim())?);
        return Ok(Field::new(name, DataType::List(item), true));
    }
    if let Some(rest) = text.strip_prefix("tensor<") {
        return tensor(name, rest).ok_or_else(|| {
            PyValueError::new_err(format!(
                "expected a tensor such as tensor<float32>[3,224,224], found {text:?}"
            ))
        })?;
    }
    if let Some(time) = time(text) {
        return Ok(Field::new(name, time, true));
    }
    Ok(Field::new(name, data_type(text)?, true))
}

/// Reads NumPy's name of a time or a duration, such as `datetime64[us]`; `None` if `text` is not
/// such a name.
fn time(text: &str) -> Option<DataType> {
    let (kind, unit) = text.strip_suffix(']')?.split_once('[')?;
    let unit = match unit {
        "s" => TimeUnit::Second,
        "ms" => TimeUnit::Millisecond,
        "us" => TimeUnit::Microsecond,
        "ns" => TimeUnit::Nanosecond,
        _ => return None,
    };
    match kind {
        "datetime64" => Some(DataType::Timestamp(unit, None)),
        "timedelta64" => Some(DataType::Duration(unit)),
        _ => None,
    }
}

/// Reads the rest of a tensor type after `tensor<`; `None` if the syntax is wrong.
fn tensor(name: &str, rest: &str) -> Option<PyResult<Field>> {
    let (inner, shape) = rest.split_once(">[")?;
    let shape = shape.strip_suffix(']')?.split(',');
    let shape: Vec<usize> = shape
        .map(|n| n.trim().parse().ok())
        .collect::<Option<_>>()?;
    let size = shape
        .iter()
        .try_fold(1_i32, |n, &side| n.checked_mul(i32::try_from(side).ok()?))?;
    let inner = match data_type(inner.trim()) {
        Ok(inner) => inner,
        Err(unknown) => return Some(Err(unknown)),
    };
    element(&inner)?;
    let item = Arc::new(Field::new_list_field(inner, false));
    let mut parameters = serde_json::json!({ "shape": shape });
    // With names of the dimensions, image functions accept the tensor as an image of one shape.
    let names = match shape.as_slice() {
        [1 | 3, _, _] => Some(["C", "H", "W"]),
        [_, _, 1 | 3] => Some(["H", "W", "C"]),
        _ => None,
    };
    if let Some(names) = names {
        parameters["dim_names"] = serde_json::json!(names);
    }
    let metadata = HashMap::from([
        (EXTENSION_NAME.to_owned(), FIXED_SHAPE.to_owned()),
        (EXTENSION_METADATA.to_owned(), parameters.to_string()),
    ]);
    let field = Field::new(name, DataType::FixedSizeList(item, size), true);
    Some(Ok(field.with_metadata(metadata)))
}

/// Returns the field of a function's value: a struct of `columns` if `is_struct` is true, else the
/// only column.
pub(crate) fn value(columns: Vec<Field>, name: &str, is_struct: bool) -> FieldRef {
    let mut columns = columns;
    match (is_struct, columns.pop()) {
        (false, Some(only)) => Arc::new(only.with_name(name)),
        (_, last) => {
            columns.extend(last);
            Arc::new(Field::new(
                name,
                DataType::Struct(Fields::from(columns)),
                true,
            ))
        }
    }
}

/// Returns the transfer format of values of a type: `("dense", dtype, shape)` or `("bool",)` for
/// values that may come as a NumPy array, `("values",)` for values that come one by one,
/// `("arrow",)` for values that come only as an Arrow array.
pub(crate) fn kind<'py>(py: Python<'py>, field: &Field) -> PyResult<Bound<'py, PyTuple>> {
    if let DataType::FixedSizeList(item, _) = field.data_type()
        && let (Some(dtype), Some(shape)) = (element(item.data_type()), tensor_shape(field))
    {
        return ("dense", dtype, PyTuple::new(py, shape)?).into_pyobject(py);
    }
    if let Some(dtype) = element(field.data_type()) {
        return ("dense", dtype, PyTuple::empty(py)).into_pyobject(py);
    }
    match field.data_type() {
        DataType::Boolean => ("bool",).into_pyobject(py),
        DataType::Utf8 | DataType::Binary | DataType::List(_) => ("values",).into_pyobject(py),
        _ => ("arrow",).into_pyobject(py),
    }
}

/// Formats a type as a user writes it in `returns=`.
pub(crate) fn named(field: &Field) -> String {
    let own = |t: &DataType| format!("{t}").to_lowercase();
    match (field.data_type(), tensor_shape(field)) {
        (DataType::FixedSizeList(item, _), Some(shape)) => {
            let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
            format!("tensor<{}>[{}]", own(item.data_type()), shape.join(","))
        }
        (DataType::List(item), _) => format!("list<{}>", named(item)),
        (other, _) => own(other),
    }
}
