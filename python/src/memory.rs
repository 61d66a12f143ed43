//! Memory that NumPy reads in place, through its array interface.
//!
//! <https://numpy.org/doc/stable/reference/arrays.interface.html>

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt8Array};
use arrow::buffer::Buffer;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::share::Lent;

/// A dense array of fixed-width elements. `numpy.asarray` creates a view that keeps the memory
/// alive.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct Memory {
    /// The owner of the memory, held only to keep the memory alive.
    _owner: ArrayRef,
    address: usize,
    shape: Vec<usize>,
    element: &'static str,
    /// The loan that makes a column's memory writable; `None` for read-only memory, and for a
    /// buffer that was created for NumPy only.
    _lent: Option<Arc<Lent>>,
    writable: bool,
}

impl Memory {
    /// Creates a view of the memory at `start`, which `owner` keeps alive. `element` is NumPy's
    /// type string of the elements. The view is writable if `lent` is not `None`.
    pub(crate) fn new(
        owner: ArrayRef,
        start: *const u8,
        shape: Vec<usize>,
        element: &'static str,
        lent: Option<Arc<Lent>>,
    ) -> Self {
        Self {
            writable: lent.is_some(),
            _lent: lent,
            _owner: owner,
            address: start as usize,
            shape,
            element,
        }
    }

    /// Creates a writable view of a buffer that was created for NumPy only.
    pub(crate) fn made(buffer: Buffer, shape: Vec<usize>, element: &'static str) -> Self {
        let start = buffer.as_ptr();
        let owner = Arc::new(UInt8Array::new(buffer.into(), None));
        Self {
            writable: true,
            ..Self::new(owner, start, shape, element, None)
        }
    }
}

#[pymethods]
impl Memory {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item(intern!(py, "version"), 3)?;
        interface.set_item(intern!(py, "shape"), PyTuple::new(py, &self.shape)?)?;
        interface.set_item(intern!(py, "typestr"), self.element)?;
        interface.set_item(intern!(py, "data"), (self.address, !self.writable))?;
        Ok(interface)
    }
}
