//! Values of Python, row by row, as an Arrow array: one pass, which checks each against the declared type.
//!
//! Numbers, truth values, texts, bytes and lists of them are read here. What only NumPy knows how to read (times,
//! tensors, halves) is gathered and handed to `forebay/_results.py` at the end.

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
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyMemoryView,
    PyString, PyTuple,
};

use crate::column::arrow_error;
use crate::dtype::element;
use crate::udf_build::dense;
use crate::udf_type::{kind, named};

/// A value that is none of the declared type: what was expected, and what was found.
pub(crate) type Wrong = String;

/// Rows whose values are wrong, in their order.
pub(crate) type WrongRows = Vec<(usize, Wrong)>;

/// The column that values of Python make. Rows that are wrong are null.
pub(crate) fn column(field: &Field, values: &Bound<'_, PyAny>) -> PyResult<(ArrayRef, WrongRows)> {
    let py = values.py();
    let mut building = builder(py, field, &Arc::new(NumpyTypes::of(py)?))?;
    let mut wrong = Vec::new();
    for (row, value) in values.try_iter()?.enumerate() {
        if let Err(why) = building.push(&value?)? {
            wrong.push((row, why));
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

/// A column that grows by a row at a time.
trait Building {
    /// Appends a value; null where it is `None`, or wrong.
    fn push(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>>;

    /// Appends the values of a list. The first that is wrong makes the list wrong.
    fn extend(&mut self, list: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>>;

    /// Appends the elements of a NumPy array, if they are of the column's type.
    fn extend_array(&mut self, _array: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(false)
    }

    fn len(&self) -> usize;

    /// The array, and the values that only now were found to be wrong.
    fn finish(self: Box<Self>, py: Python<'_>) -> PyResult<(ArrayRef, WrongRows)>;
}

/// Types of NumPy's that values may be of.
struct NumpyTypes {
    array: Py<PyAny>,
    whole: Py<PyAny>,
    real: Py<PyAny>,
    flag: Py<PyAny>,
}

impl NumpyTypes {
    fn of(py: Python<'_>) -> PyResult<Self> {
        let numpy = py.import("numpy")?;
        let named = |name: &str| numpy.getattr(name).map(Bound::unbind);
        Ok(Self {
            array: named("ndarray")?,
            whole: named("integer")?,
            real: named("floating")?,
            flag: named("bool_")?,
        })
    }
}

fn is_a(value: &Bound<'_, PyAny>, class: &Py<PyAny>) -> PyResult<bool> {
    value.is_instance(class.bind(value.py()))
}

fn builder(py: Python<'_>, field: &Field, numpy: &Arc<NumpyTypes>) -> PyResult<Box<dyn Building>> {
    fn numbers<T: Number>(field: &Field, numpy: &Arc<NumpyTypes>) -> Box<dyn Building>
    where
        T::Native: Send,
    {
        Box::new(Numbers::<T> {
            values: PrimitiveBuilder::new(),
            name: named(field),
            dtype: element(field.data_type()).unwrap_or_default(),
            numpy: Arc::clone(numpy),
        })
    }
    Ok(match field.data_type() {
        DataType::Int8 => numbers::<Int8Type>(field, numpy),
        DataType::Int16 => numbers::<Int16Type>(field, numpy),
        DataType::Int32 => numbers::<Int32Type>(field, numpy),
        DataType::Int64 => numbers::<Int64Type>(field, numpy),
        DataType::UInt8 => numbers::<UInt8Type>(field, numpy),
        DataType::UInt16 => numbers::<UInt16Type>(field, numpy),
        DataType::UInt32 => numbers::<UInt32Type>(field, numpy),
        DataType::UInt64 => numbers::<UInt64Type>(field, numpy),
        DataType::Float32 => numbers::<Float32Type>(field, numpy),
        DataType::Float64 => numbers::<Float64Type>(field, numpy),
        DataType::Boolean => Box::new(Flags {
            values: BooleanBuilder::new(),
            numpy: Arc::clone(numpy),
        }),
        DataType::Utf8 => Box::new(Texts(StringBuilder::new())),
        DataType::Binary => Box::new(Bytes(BinaryBuilder::new())),
        DataType::List(item) => Box::new(Lists {
            items: builder(py, item, numpy)?,
            item: Arc::clone(item),
            offsets: vec![0],
            valid: Vec::new(),
            name: named(field),
            numpy: Arc::clone(numpy),
        }),
        data_type => {
            let kind = kind(py, field)?;
            if kind.get_item(0)?.extract::<String>()? != "dense" {
                return Err(PyValueError::new_err(format!(
                    "only Arrow arrays can be of type {}",
                    named(field)
                )));
            }
            Box::new(Gathered {
                values: PyList::empty(py).unbind(),
                data_type: data_type.clone(),
                name: named(field),
                kind: kind.unbind(),
            })
        }
    })
}

/// Numbers that Python's are read as.
trait Number: ArrowPrimitiveType {
    /// The number, or why it is none; `numpy` tells NumPy's numbers.
    fn read(
        value: &Bound<'_, PyAny>,
        name: &str,
        numpy: &NumpyTypes,
    ) -> PyResult<Result<Self::Native, Wrong>>;
}

macro_rules! whole_numbers {
    ($($type:ty: $native:ty as $wide:ty),*) => {$(
        impl Number for $type {
            fn read(
                value: &Bound<'_, PyAny>,
                name: &str,
                numpy: &NumpyTypes,
            ) -> PyResult<Result<$native, Wrong>> {
                let is_whole = value.is_exact_instance_of::<PyInt>()
                    || value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>()
                    || is_a(value, &numpy.whole)?;
                if !is_whole {
                    return unwrapped::<Self>(value, name, numpy);
                }
                let wide = value.extract::<$wide>().ok();
                Ok(match wide.and_then(|wide| <$native>::try_from(wide).ok()) {
                    Some(number) => Ok(number),
                    None => Err(format!("{} does not fit into {name}", shown(value))),
                })
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
            fn read(
                value: &Bound<'_, PyAny>,
                name: &str,
                numpy: &NumpyTypes,
            ) -> PyResult<Result<$native, Wrong>> {
                let is_real = value.is_exact_instance_of::<PyFloat>()
                    || value.is_instance_of::<PyFloat>()
                    || value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>()
                    || is_a(value, &numpy.real)?
                    || is_a(value, &numpy.whole)?;
                if !is_real {
                    return unwrapped::<Self>(value, name, numpy);
                }
                Ok(match value.extract::<f64>() {
                    Ok(number) => Ok(number as $native),
                    Err(_) => Err(format!("{} does not fit into {name}", shown(value))),
                })
            }
        }
    )*};
}

real_numbers!(Float32Type: f32, Float64Type: f64);

/// The number in an array without dimensions; what else is no number.
fn unwrapped<T: Number>(
    value: &Bound<'_, PyAny>,
    name: &str,
    numpy: &NumpyTypes,
) -> PyResult<Result<T::Native, Wrong>> {
    if is_a(value, &numpy.array)? && value.getattr("ndim")?.extract::<usize>()? == 0 {
        let inner = value.call_method0("item")?;
        if !is_a(&inner, &numpy.array)? {
            return T::read(&inner, name, numpy);
        }
    }
    Ok(Err(found(name, value)))
}

/// A number as text, unless it has more digits than Python prints.
fn shown(value: &Bound<'_, PyAny>) -> String {
    let text = value.str().map(|text| text.to_string());
    match text {
        Ok(text) if text.len() <= 40 => text,
        _ => "the number".to_owned(),
    }
}

fn found(name: &str, value: &Bound<'_, PyAny>) -> Wrong {
    let class = value.get_type().name().map(|name| name.to_string());
    let class = class.unwrap_or_else(|_| "value".to_owned());
    format!("expected {name}, found a {class}")
}

/// Numbers.
struct Numbers<T: Number> {
    values: PrimitiveBuilder<T>,
    name: String,
    /// NumPy's name of the type.
    dtype: String,
    numpy: Arc<NumpyTypes>,
}

impl<T: Number> Building for Numbers<T> {
    fn push(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>> {
        if value.is_none() {
            self.values.append_null();
            return Ok(Ok(()));
        }
        let read = T::read(value, &self.name, &self.numpy)?;
        match read {
            Ok(number) => self.values.append_value(number),
            Err(_) => self.values.append_null(),
        }
        Ok(read.map(drop))
    }

    fn extend(&mut self, list: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>> {
        push_all(self, list)
    }

    fn extend_array(&mut self, array: &Bound<'_, PyAny>) -> PyResult<bool> {
        let dtype: String = array.getattr("dtype")?.getattr("str")?.extract()?;
        let is_masked = array.hasattr("mask")?;
        if dtype != self.dtype || is_masked {
            return Ok(false);
        }
        let bytes = array.call_method0("tobytes")?;
        let bytes = bytes.cast::<PyBytes>()?;
        // The copy is aligned.
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

/// Appends the values of a list.
fn push_all<B: Building>(building: &mut B, list: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>> {
    let mut wrong = Ok(());
    let mut push = |value: &Bound<'_, PyAny>| -> PyResult<()> {
        let pushed = building.push(value)?;
        if wrong.is_ok() {
            wrong = pushed;
        }
        Ok(())
    };
    if let Ok(list) = list.cast::<PyList>() {
        list.iter().try_for_each(|value| push(&value))?;
    } else if let Ok(tuple) = list.cast::<PyTuple>() {
        tuple.iter().try_for_each(|value| push(&value))?;
    } else {
        for value in list.try_iter()? {
            push(&value?)?;
        }
    }
    Ok(wrong)
}

/// Truth values.
struct Flags {
    values: BooleanBuilder,
    numpy: Arc<NumpyTypes>,
}

impl Building for Flags {
    fn push(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>> {
        if value.is_none() {
            self.values.append_null();
        } else if value.is_instance_of::<PyBool>() || is_a(value, &self.numpy.flag)? {
            self.values.append_value(value.is_truthy()?);
        } else if is_a(value, &self.numpy.array)? && value.getattr("ndim")?.extract::<usize>()? == 0
        {
            return self.push(&value.call_method0("item")?);
        } else {
            self.values.append_null();
            return Ok(Err(found("boolean", value)));
        }
        Ok(Ok(()))
    }

    fn extend(&mut self, list: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>> {
        push_all(self, list)
    }

    fn len(&self) -> usize {
        arrow::array::ArrayBuilder::len(&self.values)
    }

    fn finish(mut self: Box<Self>, _: Python<'_>) -> PyResult<(ArrayRef, WrongRows)> {
        Ok((Arc::new(self.values.finish()), Vec::new()))
    }
}

/// Texts.
struct Texts(StringBuilder);

impl Building for Texts {
    fn push(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>> {
        if value.is_none() {
            self.0.append_null();
            return Ok(Ok(()));
        }
        let text = value.cast::<PyString>();
        match text.as_ref().map(|text| text.to_str()) {
            Ok(Ok(text)) => {
                has_room(self.0.values_slice().len(), text.len())?;
                self.0.append_value(text);
                Ok(Ok(()))
            }
            Ok(Err(_)) => {
                self.0.append_null();
                Ok(Err(
                    "a text that UTF-8 cannot hold (a lone surrogate)".to_owned()
                ))
            }
            Err(_) => {
                self.0.append_null();
                Ok(Err(found("utf8", value)))
            }
        }
    }

    fn extend(&mut self, list: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>> {
        push_all(self, list)
    }

    fn len(&self) -> usize {
        arrow::array::ArrayBuilder::len(&self.0)
    }

    fn finish(mut self: Box<Self>, _: Python<'_>) -> PyResult<(ArrayRef, WrongRows)> {
        Ok((Arc::new(self.0.finish()), Vec::new()))
    }
}

/// Bytes.
struct Bytes(BinaryBuilder);

impl Building for Bytes {
    fn push(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>> {
        let is_view =
            value.is_instance_of::<PyByteArray>() || value.is_instance_of::<PyMemoryView>();
        if value.is_none() {
            self.0.append_null();
        } else if let Ok(bytes) = value.cast::<PyBytes>() {
            has_room(self.0.values_slice().len(), bytes.as_bytes().len())?;
            self.0.append_value(bytes.as_bytes());
        } else if is_view {
            let bytes = value.py().get_type::<PyBytes>().call1((value,))?;
            return self.push(&bytes);
        } else {
            self.0.append_null();
            return Ok(Err(found("binary", value)));
        }
        Ok(Ok(()))
    }

    fn extend(&mut self, list: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>> {
        push_all(self, list)
    }

    fn len(&self) -> usize {
        arrow::array::ArrayBuilder::len(&self.0)
    }

    fn finish(mut self: Box<Self>, _: Python<'_>) -> PyResult<(ArrayRef, WrongRows)> {
        Ok((Arc::new(self.0.finish()), Vec::new()))
    }
}

/// Offsets of Arrow's are numbers of 32 bits.
fn has_room(held: usize, more: usize) -> PyResult<()> {
    if held.saturating_add(more) <= i32::MAX as usize {
        return Ok(());
    }
    Err(PyValueError::new_err(
        "a call returned more than 2 GiB; give udf a smaller batch_size",
    ))
}

/// Lists.
struct Lists {
    items: Box<dyn Building>,
    item: FieldRef,
    offsets: Vec<i32>,
    valid: Vec<bool>,
    name: String,
    numpy: Arc<NumpyTypes>,
}

impl Lists {
    /// Appends the items of a list; what is no list is wrong.
    fn items_of(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>> {
        if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
            return self.items.extend(value);
        }
        if is_a(value, &self.numpy.array)? {
            if value.getattr("ndim")?.extract::<usize>()? != 1 {
                return self.items.extend(value);
            }
            if self.items.extend_array(value)? {
                return Ok(Ok(()));
            }
            return self.items.extend(&value.call_method0("tolist")?);
        }
        let is_other = value.is_instance_of::<PyString>()
            || value.is_instance_of::<PyBytes>()
            || value.is_instance_of::<PyDict>()
            || value.cast::<PyMapping>().is_ok()
            || !value.hasattr("__len__")?;
        if is_other {
            return Ok(Err(found(&self.name, value)));
        }
        self.items.extend(value)
    }
}

impl Building for Lists {
    fn push(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>> {
        let pushed = match value.is_none() {
            true => Ok(()),
            false => self.items_of(value)?,
        };
        has_room(self.items.len(), 0)?;
        self.offsets.push(self.items.len() as i32);
        self.valid.push(!value.is_none() && pushed.is_ok());
        Ok(pushed)
    }

    fn extend(&mut self, list: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>> {
        push_all(self, list)
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

/// Values that NumPy reads, all at once.
struct Gathered {
    values: Py<PyList>,
    data_type: DataType,
    name: String,
    kind: Py<PyTuple>,
}

impl Building for Gathered {
    fn push(&mut self, value: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>> {
        self.values.bind(value.py()).append(value)?;
        Ok(Ok(()))
    }

    fn extend(&mut self, list: &Bound<'_, PyAny>) -> PyResult<Result<(), Wrong>> {
        push_all(self, list)
    }

    fn len(&self) -> usize {
        Python::attach(|py| self.values.bind(py).len())
    }

    fn finish(self: Box<Self>, py: Python<'_>) -> PyResult<(ArrayRef, WrongRows)> {
        type Read<'py> = (Bound<'py, PyBytes>, Option<Vec<u8>>, WrongRows);
        let values = self.values.bind(py);
        let results = py.import("forebay._results")?;
        let read = results.call_method1("gathered", (values, self.name, self.kind))?;
        let (bytes, mask, wrong): Read<'_> = read.extract()?;
        let array = dense(&self.data_type, values.len(), bytes.as_bytes(), mask)?;
        Ok((array, wrong))
    }
}
