//! What `forebay/udf.py` makes a plan's function of, and what it calls functions with.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, OnceLock};

use arrow::array::RecordBatch;
use datafusion::logical_expr::Expr;
use forebay_udfs::declare;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::column::{RawColumn, arrow_error};
use crate::udf::PythonFunction;
use crate::udf_frame as frame;
use crate::udf_type;
use crate::udf_worker::Spawn;

/// What `forebay.udf` makes of a function, in the process that it was made in.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct Function(pub(crate) Arc<PythonFunction>);

/// Rows of arguments.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct Rows(pub(crate) RecordBatch);

#[pymethods]
impl Rows {
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    /// The arguments, whose memory must not be written.
    fn columns(&self) -> PyResult<Vec<RawColumn>> {
        let columns = 0..self.0.num_columns();
        columns.map(|i| RawColumn::read_only(&self.0, i)).collect()
    }

    /// `rows` rows from `first`.
    fn slice(&self, first: usize, rows: usize) -> Self {
        Self(self.0.slice(first, rows))
    }
}

#[pymethods]
impl Function {
    #[new]
    #[pyo3(signature = (name, version, deterministic, ns_per_row, arity, returns, is_struct, rows, workers))]
    #[expect(clippy::too_many_arguments, reason = "one caller, which gives all of them by name")]
    fn new(
        name: String,
        version: u32,
        deterministic: bool,
        ns_per_row: Option<u64>,
        arity: Option<usize>,
        returns: Vec<(String, Bound<'_, PyAny>)>,
        is_struct: bool,
        rows: Option<usize>,
        workers: Option<(usize, Vec<OsString>, Vec<u8>)>,
    ) -> PyResult<Self> {
        let columns = returns
            .iter()
            .map(|(name, kind)| udf_type::read(name, kind));
        let columns = columns.collect::<PyResult<Vec<_>>>()?;
        let value = udf_type::value(columns.clone(), &name, is_struct);
        let workers = workers.map(|(n, command, payload)| (n, Spawn { command, payload }));
        Ok(Self(Arc::new(PythonFunction {
            name,
            version,
            deterministic,
            ns_per_row,
            arity,
            columns,
            is_struct,
            value,
            rows,
            evaluator: OnceLock::new(),
            workers,
            duty: Mutex::default(),
        })))
    }

    /// For each returned column its name, its type as text, and how its values are handed over.
    fn kinds<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, String, Bound<'py, PyTuple>)>> {
        let columns = self.0.columns.iter();
        columns
            .map(|f| Ok((f.name().clone(), udf_type::named(f), udf_type::kind(py, f)?)))
            .collect()
    }

    /// Sets what calls the function in this process.
    fn serve(&self, evaluator: Py<PyAny>) {
        // It is set once, by the function's maker.
        let _ = self.0.evaluator.set(evaluator);
    }

    /// Sets the function up, if that was not done yet.
    fn ready(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(evaluator) = self.0.evaluator.get() {
            evaluator.bind(py).call_method0("ready")?;
        }
        Ok(())
    }

    /// Computes a request of another process.
    fn answer<'py>(&self, py: Python<'py>, request: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let rows = py.detach(|| frame::decode(request)).map_err(arrow_error)?;
        let answer = self.0.call(py, rows)?;
        let bytes = py.detach(|| frame::encode_answer(&self.0.value, answer));
        Ok(PyBytes::new(py, &bytes.map_err(arrow_error)?))
    }

    /// Ids of its worker processes.
    fn processes(&self) -> Vec<u32> {
        self.0.processes()
    }
}

/// A call in an expression: of what `forebay.udf` made, which keeps a [`Function`] for each process.
pub(crate) fn call(function: &Bound<'_, PyAny>, arguments: Vec<Expr>) -> PyResult<Expr> {
    let function = function.call_method0("_function")?;
    let function = Arc::clone(&function.cast::<Function>()?.get().0);
    Ok(declare(function).call(arguments))
}
