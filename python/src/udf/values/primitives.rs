//! Builders of numbers and booleans.

use arrow::array::{ArrayRef, ArrowPrimitiveType, BooleanBuilder, PrimitiveBuilder};
use arrow::datatypes::{
    Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt};

use super::building::{Building, Pushed, of_arrow};
use super::error::{ReadError, WrongRows, found};
use super::numpy::{Numpy, is_a};
use crate::dtype::element;
use crate::udf::types::named;

/// A numeric Arrow type that Python numbers convert to.
pub(super) trait Number: ArrowPrimitiveType {
    /// Converts a Python number; `name` is the declared type, for messages.
    fn read(value: &Bound<'_, PyAny>, name: &str) -> Result<Self::Native, ReadError>;
}

macro_rules! whole_numbers {
    ($($type:ty: $native:ty as $wide:ty),*) => {$(
        impl Number for $type {
            fn read(value: &Bound<'_, PyAny>, name: &str) -> Result<$native, ReadError> {
                let is_whole = value.is_exact_instance_of::<PyInt>()
                    || value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>()
                    || is_a(value, &Numpy::get(value.py())?.whole)?;
                if !is_whole {
                    return Err(found(name, value));
                }
                let wide = value.extract::<$wide>().ok();
                let number = wide.and_then(|wide| <$native>::try_from(wide).ok());
                number.ok_or_else(|| no_room(name, value))
            }
        }
    )*};
}

whole_numbers!(
    Int8Type: i8 as i64, Int16Type: i16 as i64, Int32Type: i32 as i64, Int64Type: i64 as i64,
    UInt8Type: u8 as u64, UInt16Type: u16 as u64, UInt32Type: u32 as u64, UInt64Type: u64 as u64
);

macro_rules! real_numbers {
    ($($type:ty: $native:ty),*) => {$(
        impl Number for $type {
            fn read(value: &Bound<'_, PyAny>, name: &str) -> Result<$native, ReadError> {
                let numpy = Numpy::get(value.py())?;
                let is_real = value.is_exact_instance_of::<PyFloat>()
                    || value.is_instance_of::<PyFloat>()
                    || value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>()
                    || is_a(value, &numpy.real)?
                    || is_a(value, &numpy.whole)?;
                if !is_real {
                    return Err(found(name, value));
                }
                let number = value.extract::<f64>().ok();
                Ok(number.ok_or_else(|| no_room(name, value))? as $native)
            }
        }
    )*};
}

real_numbers!(Float32Type: f32, Float64Type: f64);

fn no_room(name: &str, value: &Bound<'_, PyAny>) -> ReadError {
    ReadError::Wrong(format!("{} does not fit into {name}", shown(value)))
}

/// Formats a number for a message. For a number with more than 40 characters, or more digits than
/// Python converts to text, returns `the number`.
fn shown(value: &Bound<'_, PyAny>) -> String {
    let text = value.str().map(|text| text.to_string());
    match text {
        Ok(text) if text.len() <= 40 => text,
        _ => "the number".to_owned(),
    }
}

/// A builder of numbers.
pub(super) struct Numbers<T: Number> {
    values: PrimitiveBuilder<T>,
    name: String,
    /// NumPy's name of the element type.
    dtype: String,
}

impl<T: Number> Numbers<T> {
    pub(super) fn of(field: &Field) -> Self {
        Self {
            values: PrimitiveBuilder::new(),
            name: named(field),
            dtype: element(field.data_type()).unwrap_or_default().to_owned(),
        }
    }
}

impl<T: Number> Building for Numbers<T> {
    fn append(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        self.values.append_value(T::read(value, &self.name)?);
        Ok(())
    }

    fn extend_array(&mut self, array: &Bound<'_, PyAny>) -> Result<bool, ReadError> {
        let dtype: String = array.getattr("dtype")?.getattr("str")?.extract()?;
        let is_masked = array.hasattr("mask")?;
        if dtype != self.dtype || is_masked {
            return Ok(false);
        }
        let bytes = array.call_method0("tobytes")?;
        let bytes = bytes.cast::<PyBytes>().map_err(PyErr::from)?;
        // The bytes are copied, so that the elements are aligned.
        let buffer = arrow::buffer::Buffer::from_slice_ref(bytes.as_bytes());
        self.values.append_slice(buffer.typed_data::<T::Native>());
        Ok(true)
    }

    of_arrow!(values);
}

/// A builder of booleans.
#[derive(Default)]
pub(super) struct Flags(BooleanBuilder);

impl Building for Flags {
    fn append(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        if !value.is_instance_of::<PyBool>() && !is_a(value, &Numpy::get(value.py())?.flag)? {
            return Err(found("boolean", value));
        }
        self.0.append_value(value.is_truthy()?);
        Ok(())
    }

    of_arrow!(0);
}
