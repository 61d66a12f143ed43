//! NumPy's type strings for Arrow types, and the shapes of tensors.

use std::str::FromStr;

use arrow::datatypes::{DataType, Field, TimeUnit};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A NumPy type string with the byte order of this machine.
macro_rules! ordered {
    ($element:literal) => {
        if cfg!(target_endian = "big") {
            concat!(">", $element)
        } else {
            concat!("<", $element)
        }
    };
}

/// Returns NumPy's type string for an Arrow type; `None` if NumPy lacks the type.
pub(crate) const fn element(data_type: &DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Int8 => "|i1",
        DataType::UInt8 => "|u1",
        DataType::Int16 => ordered!("i2"),
        DataType::UInt16 => ordered!("u2"),
        DataType::Int32 => ordered!("i4"),
        DataType::UInt32 => ordered!("u4"),
        DataType::Int64 => ordered!("i8"),
        DataType::UInt64 => ordered!("u8"),
        DataType::Float16 => ordered!("f2"),
        DataType::Float32 => ordered!("f4"),
        DataType::Float64 => ordered!("f8"),
        DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => ordered!("M8[ms]"),
        DataType::Timestamp(TimeUnit::Second, _) => ordered!("M8[s]"),
        DataType::Timestamp(TimeUnit::Microsecond, _) => ordered!("M8[us]"),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => ordered!("M8[ns]"),
        DataType::Duration(TimeUnit::Second) => ordered!("m8[s]"),
        DataType::Duration(TimeUnit::Millisecond) => ordered!("m8[ms]"),
        DataType::Duration(TimeUnit::Microsecond) => ordered!("m8[us]"),
        DataType::Duration(TimeUnit::Nanosecond) => ordered!("m8[ns]"),
        _ => return None,
    })
}

/// Returns the shape of a fixed-shape tensor; `None` if the field is of another type.
pub(crate) fn tensor_shape(field: &Field) -> Option<Vec<usize>> {
    if field.extension_type_name() != Some("arrow.fixed_shape_tensor") {
        return None;
    }
    let parameters = field.extension_type_metadata()?;
    let parameters: serde_json::Value = serde_json::from_str(parameters).ok()?;
    let shape = parameters.get("shape")?.as_array()?;
    shape
        .iter()
        .map(|size| usize::try_from(size.as_u64()?).ok())
        .collect()
}

/// Returns the Arrow type for `name`, a type name of NumPy or Arrow.
pub(crate) fn data_type(name: &str) -> PyResult<DataType> {
    Ok(match name.to_ascii_lowercase().as_str() {
        "bool" | "boolean" => DataType::Boolean,
        "int8" => DataType::Int8,
        "int16" => DataType::Int16,
        "int32" => DataType::Int32,
        "int64" | "int" => DataType::Int64,
        "uint8" => DataType::UInt8,
        "uint16" => DataType::UInt16,
        "uint32" => DataType::UInt32,
        "uint64" => DataType::UInt64,
        "float16" => DataType::Float16,
        "float32" => DataType::Float32,
        "float64" | "float" => DataType::Float64,
        "str" | "string" | "utf8" => DataType::Utf8,
        "bytes" | "binary" => DataType::Binary,
        _ => DataType::from_str(name)
            .map_err(|_| PyValueError::new_err(format!("unknown type {name:?}")))?,
    })
}
