//! NumPy's types, and values that stand for a missing value or a single element.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use super::error::ReadError;

/// The NumPy types that values are compared with, and NumPy's marker of a masked element.
pub(super) struct Numpy {
    pub(super) array: Py<PyAny>,
    pub(super) whole: Py<PyAny>,
    pub(super) real: Py<PyAny>,
    pub(super) flag: Py<PyAny>,
    masked: Py<PyAny>,
}

impl Numpy {
    /// Returns NumPy's types. The types are looked up by the first call only.
    pub(super) fn get(py: Python<'_>) -> Result<&'static Self, ReadError> {
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
pub(super) fn is_missing(value: &Bound<'_, PyAny>) -> Result<bool, ReadError> {
    Ok(value.is_none() || value.is(&Numpy::get(value.py())?.masked))
}

/// Returns the element of an array without dimensions; `None` for any other value.
pub(super) fn element_of<'py>(
    value: &Bound<'py, PyAny>,
) -> Result<Option<Bound<'py, PyAny>>, ReadError> {
    let py = value.py();
    let array = &Numpy::get(py)?.array;
    if !is_a(value, array)? || value.getattr("ndim")?.extract::<usize>()? != 0 {
        return Ok(None);
    }
    let element = value.get_item(PyTuple::empty(py))?;
    let is_plain = is_missing(&element)? || !is_a(&element, array)?;
    Ok(is_plain.then_some(element))
}

pub(super) fn is_a(value: &Bound<'_, PyAny>, class: &Py<PyAny>) -> PyResult<bool> {
    value.is_instance(class.bind(value.py()))
}
