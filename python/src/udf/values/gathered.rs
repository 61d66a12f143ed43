//! A builder of values that only NumPy can read.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::building::{Building, Pushed};
use super::error::WrongRows;
use crate::udf::dense::dense;

/// A builder that gathers all values first, and then lets NumPy convert all of them at once.
pub(super) struct Gathered {
    values: Vec<Py<PyAny>>,
    data_type: DataType,
    name: String,
    kind: Py<PyTuple>,
}

impl Gathered {
    /// Creates a builder of a column of type `data_type`, which messages call `name`. `kind` is
    /// the type in the form that `forebay/_results.py` reads.
    pub(super) fn of(data_type: &DataType, name: String, kind: Py<PyTuple>) -> Self {
        Self {
            values: Vec::new(),
            data_type: data_type.clone(),
            name,
            kind,
        }
    }
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
