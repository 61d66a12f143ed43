//! Builders of columns.

use arrow::array::ArrayRef;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::error::{ReadError, WrongRows};
use super::numpy::{element_of, is_missing};

pub(super) type Pushed = Result<(), ReadError>;

/// A builder of a column. The builder takes one Python value at a time.
pub(super) trait Building {
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

/// Implements the methods of [`Building`] that Arrow's builders have, too, by the builder in the
/// field `$arrow`.
macro_rules! of_arrow {
    ($arrow:tt) => {
        fn append_null(&mut self) {
            self.$arrow.append_null();
        }

        fn len(&self) -> usize {
            arrow::array::ArrayBuilder::len(&self.$arrow)
        }

        fn finish(mut self: Box<Self>, _: Python<'_>) -> PyResult<(ArrayRef, WrongRows)> {
            Ok((std::sync::Arc::new(self.$arrow.finish()), Vec::new()))
        }
    };
}
pub(super) use of_arrow;

/// Fails if a column of `held` elements cannot take `more` further elements: Arrow's offsets have
/// 32 bits. The elements of a text or binary column are its bytes.
pub(super) fn has_room(held: usize, more: usize) -> Pushed {
    if held.saturating_add(more) <= i32::MAX as usize {
        return Ok(());
    }
    let why = "a call returned more than 2147483647 bytes or list elements in one column; give udf a smaller batch_size";
    Err(ReadError::Broken(PyValueError::new_err(why)))
}
