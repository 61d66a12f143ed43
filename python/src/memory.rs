//! Memory that NumPy reads in place, through NumPy's array interface.
//!
//! <https://numpy.org/doc/stable/reference/arrays.interface.html>

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt8Array};
use arrow::buffer::Buffer;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A dense array of fixed-width elements. `numpy.asarray` makes a view of it, which keeps it alive.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct Memory {
    /// Whose memory it is; kept for that alone.
    _owner: ArrayRef,
    address: usize,
    shape: Vec<usize>,
    element: String,
    writable: bool,
}

impl Memory {
    /// A view of memory that `owner` keeps, of elements that NumPy's type string names.
    pub(crate) fn new(
        owner: ArrayRef,
        start: *const u8,
        shape: Vec<usize>,
        element: impl Into<String>,
        writable: bool,
    ) -> Self {
        Self {
            _owner: owner,
            address: start as usize,
            shape,
            element: element.into(),
            writable,
        }
    }

    /// A view of a buffer of its own.
    pub(crate) fn made(buffer: Buffer, shape: Vec<usize>, element: &str) -> Self {
        let start = buffer.as_ptr();
        let owner = Arc::new(UInt8Array::new(buffer.into(), None));
        Self::new(owner, start, shape, element, true)
    }
}

#[pymethods]
impl Memory {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        interface.set_item("typestr", &self.element)?;
        interface.set_item("data", (self.address, !self.writable))?;
        Ok(interface)
    }
}
