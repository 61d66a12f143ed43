//! Converts Python values to an Arrow array, one after the other, checking each value against the
//! declared type.
//!
//! Numbers, booleans, text, bytes and lists of these are read here. Values that only NumPy can read
//! (times, tensors, half floats) are gathered and passed to `forebay/_results.py` at the end.

mod building;
mod error;
mod gathered;
mod lists;
mod numpy;
mod primitives;
mod strings;

use arrow::array::ArrayRef;
use arrow::datatypes::{
    DataType, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use self::building::Building;
use self::error::ReadError;
pub(crate) use self::error::WrongRows;
use self::gathered::Gathered;
use self::lists::Lists;
use self::primitives::{Flags, Numbers};
use self::strings::{ByteStrings, Texts};
use crate::udf::types::{kind, named};

/// Builds a column from Python values. Rows with wrong values are null.
pub(crate) fn column(field: &Field, values: &Bound<'_, PyAny>) -> PyResult<(ArrayRef, WrongRows)> {
    let py = values.py();
    let mut building = builder(py, field)?;
    let mut wrong = Vec::new();
    for (row, value) in values.try_iter()?.enumerate() {
        match building.push(&value?) {
            Ok(()) => {}
            Err(ReadError::Wrong(why)) => wrong.push((row, why)),
            Err(ReadError::Broken(error)) => return Err(error),
        }
    }
    let (array, found_late) = building.finish(py)?;
    if !found_late.is_empty() {
        wrong.extend(found_late);
        wrong.sort_by_key(|(row, _)| *row);
        wrong.dedup_by_key(|(row, _)| *row);
    }
    Ok((array, wrong))
}

fn builder(py: Python<'_>, field: &Field) -> PyResult<Box<dyn Building>> {
    Ok(match field.data_type() {
        DataType::Int8 => Box::new(Numbers::<Int8Type>::of(field)),
        DataType::Int16 => Box::new(Numbers::<Int16Type>::of(field)),
        DataType::Int32 => Box::new(Numbers::<Int32Type>::of(field)),
        DataType::Int64 => Box::new(Numbers::<Int64Type>::of(field)),
        DataType::UInt8 => Box::new(Numbers::<UInt8Type>::of(field)),
        DataType::UInt16 => Box::new(Numbers::<UInt16Type>::of(field)),
        DataType::UInt32 => Box::new(Numbers::<UInt32Type>::of(field)),
        DataType::UInt64 => Box::new(Numbers::<UInt64Type>::of(field)),
        DataType::Float32 => Box::new(Numbers::<Float32Type>::of(field)),
        DataType::Float64 => Box::new(Numbers::<Float64Type>::of(field)),
        DataType::Boolean => Box::new(Flags::default()),
        DataType::Utf8 => Box::new(Texts::default()),
        DataType::Binary => Box::new(ByteStrings::default()),
        DataType::List(item) => Box::new(Lists::of(builder(py, item)?, item, named(field))),
        data_type => {
            let kind = kind(py, field)?;
            if kind.get_item(0)?.extract::<String>()? != "dense" {
                return Err(PyValueError::new_err(format!(
                    "values of type {} must be returned as Arrow arrays",
                    named(field)
                )));
            }
            Box::new(Gathered::of(data_type, named(field), kind.unbind()))
        }
    })
}
