//! The argument rows of a call of a Python function.

use arrow::array::RecordBatch;
use pyo3::prelude::*;

use crate::column::RawColumn;

/// The arguments of a call of a Python function, for several rows.
#[pyclass(frozen, name = "Rows", module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct ArgumentRows(pub(crate) RecordBatch);

#[pymethods]
impl ArgumentRows {
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    /// Returns the arguments as read-only columns.
    fn columns(&self) -> PyResult<Vec<RawColumn>> {
        let columns = 0..self.0.num_columns();
        columns.map(|i| RawColumn::read_only(&self.0, i)).collect()
    }

    /// Returns `rows` rows, starting at row `first`.
    fn slice(&self, first: usize, rows: usize) -> Self {
        Self(self.0.slice(first, rows))
    }
}
