//! NumPy's type strings for Arrow types, and the shapes of tensors.

use std::str::FromStr;

use arrow::datatypes::{DataType, Field, TimeUnit};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Returns NumPy's type string for an Arrow type; `None` if NumPy lacks the type.
pub(crate) fn element(data_type: &DataType) -> Option<String> {
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    };
    let order = if cfg!(target_endian = "big") {
        '>'
    } else {
        '<'
    };
    Some(match data_type {
        DataType::Int8 => "|i1".to_owned(),
        DataType::UInt8 => "|u1".to_owned(),
        DataType::Int16 => format!("{order}i2"),
        DataType::UInt16 => format!("{order}u2"),
        DataType::Int32 => format!("{order}i4"),
        DataType::UInt32 => format!("{order}u4"),
        DataType::Int64 => format!("{order}i8"),
        DataType::UInt64 => format!("{order}u8"),
        DataType::Float16 => format!("{order}f2"),
        DataType::Float32 => format!("{order}f4"),
        DataType::Float64 => format!("{order}f8"),
        DataType::Date64 => format!("{order}M8[ms]"),
        DataType::Timestamp(of, _) => format!("{order}M8[{}]", unit(of)),
        DataType::Duration(of) => format!("{order}m8[{}]", unit(of)),
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
