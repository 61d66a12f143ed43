//! The class by which `forebay/udf.py` represents a function of a plan.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, OnceLock};

use datafusion::logical_expr::Expr;
use forebay_udfs::declare;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::column::arrow_error;
use crate::udf::PythonFunction;
use crate::udf_frame as frame;
use crate::udf_type;
use crate::udf_worker::Spawn;

/// The declaration of a function that was passed to `forebay.udf`. Each process has a separate
/// object.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct Function(pub(crate) Arc<PythonFunction>);

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

    /// Returns the name, the type as text, and the transfer format of each returned column.
    fn kinds<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, String, Bound<'py, PyTuple>)>> {
        let columns = self.0.columns.iter();
        columns
            .map(|f| Ok((f.name().clone(), udf_type::named(f), udf_type::kind(py, f)?)))
            .collect()
    }

    /// Sets the Python object that calls the function in this process.
    fn serve(&self, evaluator: Py<PyAny>) {
        // `forebay/udf.py` calls this method once per object, so setting the evaluator never fails.
        let _ = self.0.evaluator.set(evaluator);
    }

    /// Sets the function up for calls, unless it is set up already.
    fn ready(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(evaluator) = self.0.evaluator.get() {
            evaluator.bind(py).call_method0("ready")?;
        }
        Ok(())
    }

    /// Computes a request that another process encoded, and returns the encoded answer.
    fn answer<'py>(&self, py: Python<'py>, request: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let rows = py.detach(|| frame::decode(request)).map_err(arrow_error)?;
        let answer = self.0.call(py, rows)?;
        let bytes = py.detach(|| frame::encode_answer(&self.0.value, answer));
        Ok(PyBytes::new(py, &bytes.map_err(arrow_error)?))
    }

    /// Returns the ids of the function's worker processes.
    fn processes(&self) -> Vec<u32> {
        self.0.processes()
    }
}

/// Creates a call of a Python function in an expression. `function` is the object that
/// `forebay.udf` returned. That object keeps one [`Function`] per process.
pub(crate) fn call(function: &Bound<'_, PyAny>, arguments: Vec<Expr>) -> PyResult<Expr> {
    let function = function.call_method0("_function")?;
    let function = Arc::clone(&function.cast::<Function>()?.get().0);
    Ok(declare(function).call(arguments))
}
