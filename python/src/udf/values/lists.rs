//! A builder of lists.

use std::sync::Arc;

use arrow::array::{ArrayRef, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::FieldRef;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyString, PyTuple};

use super::building::{Building, Pushed, has_room};
use super::error::{WrongRows, found};
use super::numpy::{Numpy, is_a};
use crate::column::arrow_error;

/// A builder of lists.
pub(super) struct Lists {
    items: Box<dyn Building>,
    item: FieldRef,
    offsets: Vec<i32>,
    valid: Vec<bool>,
    name: String,
}

impl Lists {
    /// Creates a builder of lists whose elements `items` builds. `name` is the type of the lists,
    /// for messages.
    pub(super) fn of(items: Box<dyn Building>, item: &FieldRef, name: String) -> Self {
        Self {
            items,
            item: Arc::clone(item),
            offsets: vec![0],
            valid: Vec::new(),
            name,
        }
    }

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
