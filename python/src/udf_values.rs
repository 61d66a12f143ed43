//! Converts Python values to an Arrow array, one after the other, checking each value against the
//! declared type.
//!
//! Numbers, booleans, text, bytes and lists of these are read here. Values that only NumPy can read
//! (times, tensors, half floats) are gathered and passed to `forebay/_results.py` at the end.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryBuilder, BooleanBuilder, ListArray, PrimitiveBuilder,
    StringBuilder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    DataType, Field, FieldRef, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use forebay_udfs::bounded;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyMemoryView,
    PyString, PyTuple,
};

use crate::column::arrow_error;
use crate::dtype::element;
use crate::udf_dense::dense;
use crate::udf_type::{kind, named};

/// Message for a value that does not have the declared type. The message names the expected and the
/// found type.
pub(crate) type Wrong = String;

/// Indices of the rows with wrong values, ascending, each with the message for its value.
pub(crate) type WrongRows = Vec<(usize, Wrong)>;

/// The reason why a value could not be converted.
#[derive(Debug)]
enum ReadError {
    /// The value does not have the declared type. Only the row of this value fails.
    Wrong(Wrong),
    /// An exception that ends the whole call.
    Broken(PyErr),
}

impl From<PyErr> for ReadError {
    /// Reading a value may run code of the value's Python class. If this code raises an
    /// `Exception`, only this value is wrong. Any other exception, such as `KeyboardInterrupt`,
    /// ends the call.
    fn from(error: PyErr) -> Self {
        if Python::attach(|py| error.is_instance_of::<PyException>(py)) {
            Self::Wrong(bounded(format!("reading the value raised {error}")))
        } else {
            Self::Broken(error)
        }
    }
}

type Pushed = Result<(), ReadError>;

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

/// A builder of a column. The builder takes one Python value at a time.
trait Building {
    /// Appends a value; appends nothing if the value is wrong.
    fn append(&mut self, value: &Bound<'_, PyAny>) -> Pushed;

    fn append_null(&mut self);

    /// Appends a value, or null if the value is `None`, masked, or wrong. A NumPy array without
    /// dimensions counts as its only element.
    fn push(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        if is_missing(value)? {
            self.append_null();
            return Ok(());
        }
        let refused = match self.append(value) {
            Err(refused @ ReadError::Wrong(_)) => refused,
            appended => return appended,
        };
        let why = match element_of(value) {
            Ok(Some(element)) => return self.push(&element),
            Ok(None) => refused,
            Err(broken @ ReadError::Broken(_)) => return Err(broken),
            Err(why) => why,
        };
        self.append_null();
        Err(why)
    }

    /// Appends the values of a list. Stops at the first wrong value, which makes the whole list
    /// wrong.
    fn extend(&mut self, list: &Bound<'_, PyAny>) -> Pushed {
        if let Ok(list) = list.cast::<PyList>() {
            list.iter().try_for_each(|value| self.push(&value))
        } else if let Ok(tuple) = list.cast::<PyTuple>() {
            tuple.iter().try_for_each(|value| self.push(&value))
        } else {
            list.try_iter()?.try_for_each(|value| self.push(&value?))
        }
    }

    /// Appends the elements of a NumPy array and returns true, if the elements have the column's
    /// type. Otherwise, appends nothing and returns false.
    fn extend_array(&mut self, _array: &Bound<'_, PyAny>) -> Result<bool, ReadError> {
        Ok(false)
    }

    fn len(&self) -> usize;

    /// Builds the array. Also returns the rows whose values are only now found to be wrong.
    fn finish(self: Box<Self>, py: Python<'_>) -> PyResult<(ArrayRef, WrongRows)>;
}

/// The NumPy types that values are compared with, and NumPy's marker of a masked element.
struct Numpy {
    array: Py<PyAny>,
    whole: Py<PyAny>,
    real: Py<PyAny>,
    flag: Py<PyAny>,
    masked: Py<PyAny>,
}

impl Numpy {
    /// Returns NumPy's types. The types are looked up by the first call only.
    fn get(py: Python<'_>) -> Result<&'static Self, ReadError> {
        static NUMPY: PyOnceLock<Numpy> = PyOnceLock::new();
        let found = NUMPY.get_or_try_init(py, || {
            let numpy = py.import("numpy")?;
            let named = |name: &str| numpy.getattr(name).map(Bound::unbind);
            Ok(Self {
                array: named("ndarray")?,
                whole: named("integer")?,
                real: named("floating")?,
                flag: named("bool_")?,
                masked: py.import("numpy.ma")?.getattr("masked")?.unbind(),
            })
        });
        found.map_err(ReadError::Broken)
    }
}

/// True if a value is `None` or masked.
fn is_missing(value: &Bound<'_, PyAny>) -> Result<bool, ReadError> {
    Ok(value.is_none() || value.is(&Numpy::get(value.py())?.masked))
}

/// Returns the element of an array without dimensions; `None` for any other value.
fn element_of<'py>(value: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyAny>>, ReadError> {
    let py = value.py();
    let array = &Numpy::get(py)?.array;
    if !is_a(value, array)? || value.getattr("ndim")?.extract::<usize>()? != 0 {
        return Ok(None);
    }
    let element = value.get_item(PyTuple::empty(py))?;
    let is_plain = is_missing(&element)? || !is_a(&element, array)?;
    Ok(is_plain.then_some(element))
}

fn is_a(value: &Bound<'_, PyAny>, class: &Py<PyAny>) -> PyResult<bool> {
    value.is_instance(class.bind(value.py()))
}

fn builder(py: Python<'_>, field: &Field) -> PyResult<Box<dyn Building>> {
    fn numbers<T: Number>(field: &Field) -> Box<dyn Building>
    where
        T::Native: Send,
    {
        Box::new(Numbers::<T> {
            values: PrimitiveBuilder::new(),
            name: named(field),
            dtype: element(field.data_type()).unwrap_or_default().to_owned(),
        })
    }
    Ok(match field.data_type() {
        DataType::Int8 => numbers::<Int8Type>(field),
        DataType::Int16 => numbers::<Int16Type>(field),
        DataType::Int32 => numbers::<Int32Type>(field),
        DataType::Int64 => numbers::<Int64Type>(field),
        DataType::UInt8 => numbers::<UInt8Type>(field),
        DataType::UInt16 => numbers::<UInt16Type>(field),
        DataType::UInt32 => numbers::<UInt32Type>(field),
        DataType::UInt64 => numbers::<UInt64Type>(field),
        DataType::Float32 => numbers::<Float32Type>(field),
        DataType::Float64 => numbers::<Float64Type>(field),
        DataType::Boolean => Box::new(Flags(BooleanBuilder::new())),
        DataType::Utf8 => Box::new(Texts(StringBuilder::new())),
        DataType::Binary => Box::new(ByteStrings(BinaryBuilder::new())),
        DataType::List(item) => Box::new(Lists {
            items: builder(py, item)?,
            item: Arc::clone(item),
            offsets: vec![0],
            valid: Vec::new(),
            name: named(field),
        }),
        data_type => {
            let kind = kind(py, field)?;
            if kind.get_item(0)?.extract::<String>()? != "dense" {
                return Err(PyValueError::new_err(format!(
                    "values of type {} must be returned as Arrow arrays",
                    named(field)
                )));
            }
            Box::new(Gathered {
                values: Vec::new(),
                data_type: data_type.clone(),
                name: named(field),
                kind: kind.unbind(),
            })
        }
    })
}

/// A numeric Arrow type that Python numbers convert to.
trait Number: ArrowPrimitiveType {
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

fn found(name: &str, value: &Bound<'_, PyAny>) -> ReadError {
    let class = value.get_type().name().map(|name| name.to_string());
    let class = class.unwrap_or_else(|_| "value".to_owned());
    ReadError::Wrong(format!("expected {name}, found a {class}"))
}

/// A builder of numbers.
struct Numbers<T: Number> {
    values: PrimitiveBuilder<T>,
    name: String,
    /// NumPy's name of the element type.
    dtype: String,
}

impl<T: Number> Building for Numbers<T> {
    fn append(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        self.values.append_value(T::read(value, &self.name)?);
        Ok(())
    }

    fn append_null(&mut self) {
        self.values.append_null();
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

    fn len(&self) -> usize {
        arrow::array::ArrayBuilder::len(&self.values)
    }

    fn finish(mut self: Box<Self>, _: Python<'_>) -> PyResult<(ArrayRef, WrongRows)> {
        Ok((Arc::new(self.values.finish()), Vec::new()))
    }
}

/// A builder of booleans.
struct Flags(BooleanBuilder);

impl Building for Flags {
    fn append(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        if !value.is_instance_of::<PyBool>() && !is_a(value, &Numpy::get(value.py())?.flag)? {
            return Err(found("boolean", value));
        }
        self.0.append_value(value.is_truthy()?);
        Ok(())
    }

    fn append_null(&mut self) {
        self.0.append_null();
    }

    fn len(&self) -> usize {
        arrow::array::ArrayBuilder::len(&self.0)
    }

    fn finish(mut self: Box<Self>, _: Python<'_>) -> PyResult<(ArrayRef, WrongRows)> {
        Ok((Arc::new(self.0.finish()), Vec::new()))
    }
}

/// A builder of text.
struct Texts(StringBuilder);

impl Building for Texts {
    fn append(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        let Ok(text) = value.cast::<PyString>() else {
            return Err(found("utf8", value));
        };
        let Ok(text) = text.to_str() else {
            let why = "expected utf8, found a text with a lone surrogate, which UTF-8 cannot hold";
            return Err(ReadError::Wrong(why.to_owned()));
        };
        has_room(self.0.values_slice().len(), text.len())?;
        self.0.append_value(text);
        Ok(())
    }

    fn append_null(&mut self) {
        self.0.append_null();
    }

    fn len(&self) -> usize {
        arrow::array::ArrayBuilder::len(&self.0)
    }

    fn finish(mut self: Box<Self>, _: Python<'_>) -> PyResult<(ArrayRef, WrongRows)> {
        Ok((Arc::new(self.0.finish()), Vec::new()))
    }
}

/// A builder of bytes.
struct ByteStrings(BinaryBuilder);

impl Building for ByteStrings {
    fn append(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        let is_view =
            value.is_instance_of::<PyByteArray>() || value.is_instance_of::<PyMemoryView>();
        if is_view {
            let bytes = value.py().get_type::<PyBytes>().call1((value,))?;
            return self.append(&bytes);
        }
        let Ok(bytes) = value.cast::<PyBytes>() else {
            return Err(found("binary", value));
        };
        has_room(self.0.values_slice().len(), bytes.as_bytes().len())?;
        self.0.append_value(bytes.as_bytes());
        Ok(())
    }

    fn append_null(&mut self) {
        self.0.append_null();
    }

    fn len(&self) -> usize {
        arrow::array::ArrayBuilder::len(&self.0)
    }

    fn finish(mut self: Box<Self>, _: Python<'_>) -> PyResult<(ArrayRef, WrongRows)> {
        Ok((Arc::new(self.0.finish()), Vec::new()))
    }
}

/// Fails if a column of `held` elements cannot take `more` further elements: Arrow's offsets have
/// 32 bits. The elements of a text or binary column are its bytes.
fn has_room(held: usize, more: usize) -> Pushed {
    if held.saturating_add(more) <= i32::MAX as usize {
        return Ok(());
    }
    let why = "a call returned more than 2147483647 bytes or list elements in one column; give udf a smaller batch_size";
    Err(ReadError::Broken(PyValueError::new_err(why)))
}

/// A builder of lists.
struct Lists {
    items: Box<dyn Building>,
    item: FieldRef,
    offsets: Vec<i32>,
    valid: Vec<bool>,
    name: String,
}

impl Lists {
    /// Appends the elements of a list or another sequence. Any other value, and also text and
    /// bytes, is wrong.
    fn items_of(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
            return self.items.extend(value);
        }
        if is_a(value, &Numpy::get(value.py())?.array)? {
            if value.getattr("ndim")?.extract::<usize>()? != 1 {
                return self.items.extend(value);
            }
            if self.items.extend_array(value)? {
                return Ok(());
            }
            let kind: String = value.getattr("dtype")?.getattr("kind")?.extract()?;
            if matches!(kind.as_str(), "m" | "M") {
                // For some units, `tolist` returns times as plain numbers, without the unit.
                return self.items.extend(value);
            }
            return self.items.extend(&value.call_method0("tolist")?);
        }
        let is_other = value.is_instance_of::<PyString>()
            || value.is_instance_of::<PyBytes>()
            || value.is_instance_of::<PyDict>()
            || value.cast::<PyMapping>().is_ok()
            || !value.hasattr("__len__")?;
        if is_other {
            return Err(found(&self.name, value));
        }
        self.items.extend(value)
    }

    /// Ends the current list. The list has the elements that were appended since the end of the
    /// previous list.
    fn end(&mut self, is_valid: bool) {
        self.offsets.push(self.items.len() as i32);
        self.valid.push(is_valid);
    }
}

impl Building for Lists {
    fn append(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        let appended = self.items_of(value);
        // If an element is wrong, the elements before it are appended already. These elements
        // become the hidden elements of a null list.
        has_room(self.items.len(), 0)?;
        appended?;
        self.end(true);
        Ok(())
    }

    fn append_null(&mut self) {
        self.end(false);
    }

    fn len(&self) -> usize {
        self.valid.len()
    }

    fn finish(self: Box<Self>, py: Python<'_>) -> PyResult<(ArrayRef, WrongRows)> {
        let Self {
            items,
            item,
            offsets,
            valid,
            ..
        } = *self;
        let (items, wrong) = items.finish(py)?;
        let row = |item: usize| offsets[1..].partition_point(|&end| end as usize <= item);
        let wrong = wrong.into_iter().map(|(item, why)| (row(item), why));
        let wrong = wrong.collect();
        let nulls = valid.contains(&false).then(|| NullBuffer::from(valid));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let list = ListArray::try_new(item, offsets, items, nulls);
        Ok((Arc::new(list.map_err(arrow_error)?), wrong))
    }
}

/// A builder that gathers all values first, and then lets NumPy convert all of them at once.
struct Gathered {
    values: Vec<Py<PyAny>>,
    data_type: DataType,
    name: String,
    kind: Py<PyTuple>,
}

impl Building for Gathered {
    fn append(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        self.values.push(value.clone().unbind());
        Ok(())
    }

    fn append_null(&mut self) {
        self.values.push(Python::attach(|py| py.None()));
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    fn finish(self: Box<Self>, py: Python<'_>) -> PyResult<(ArrayRef, WrongRows)> {
        type GatheredResult<'py> = (Bound<'py, PyBytes>, Option<Vec<u8>>, WrongRows);
        let values = PyList::new(py, &self.values)?;
        let results = py.import("forebay._results")?;
        let read = results.call_method1("gathered", (&values, self.name, self.kind))?;
        let (bytes, mask, wrong): GatheredResult<'_> = read.extract()?;
        let array = dense(&self.data_type, values.len(), bytes.as_bytes(), mask)?;
        Ok((array, wrong))
    }
}
