//! The class by which `forebay/udf.py` represents a function of a plan.

use std::ffi::OsString;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::FieldRef;
use datafusion::logical_expr::Expr;
use forebay_python_functions::settings::CrewSettings;
use forebay_python_functions::{Caller, Declaration, PythonFunction, frame};
use forebay_udfs::declare;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::caller::PythonCaller;
use super::types;
use crate::column::arrow_error;

/// The declaration of a function that was passed to `forebay.udf`. Each process has a separate
/// object.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) declared: Arc<PythonFunction>,
    caller: Arc<PythonCaller>,
    value: FieldRef,
}

#[pymethods]
impl Function {
    /// Declares a function. `workers` are the number, the command and the pickled function of worker
    /// processes; `None` to compute in this process. `pickle` returns the versions of Python and
    /// cloudpickle, and the function for the workers of a cluster.
    #[new]
    #[pyo3(signature = (name, version, deterministic, ns_per_row, arity, returns, is_struct, rows, workers, pickle))]
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
        pickle: Py<PyAny>,
    ) -> PyResult<Self> {
        let columns = returns.iter().map(|(name, kind)| types::read(name, kind));
        let columns = columns.collect::<PyResult<Vec<_>>>()?;
        let value = types::value(columns.clone(), &name, is_struct);
        let declaration = Declaration {
            name,
            version,
            deterministic,
            ns_per_row,
            arity,
            value: value.as_ref().clone(),
            rows,
            processes: workers.as_ref().map(|(processes, ..)| *processes),
        };
        let crew = workers.map(|(processes, command, payload)| CrewSettings {
            processes,
            command,
            payload,
            worker: None,
        });
        let caller = Arc::new(PythonCaller {
            declaration: declaration.clone(),
            columns,
            is_struct,
            evaluator: OnceLock::new(),
            pickle,
            code: OnceLock::new(),
        });
        let called: Arc<dyn Caller> = Arc::clone(&caller) as _;
        Ok(Self {
            declared: Arc::new(PythonFunction::new(declaration, called, crew)),
            caller,
            value,
        })
    }

    /// Returns the name, the type as text, and the transfer format of each returned column.
    fn kinds<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, String, Bound<'py, PyTuple>)>> {
        let columns = self.caller.columns.iter();
        columns
            .map(|f| Ok((f.name().clone(), types::named(f), types::kind(py, f)?)))
            .collect()
    }

    /// Sets the Python object that calls the function in this process.
    fn serve(&self, evaluator: Py<PyAny>) {
        // `forebay/udf.py` calls this method once per object, so setting the evaluator never fails.
        let _ = self.caller.evaluator.set(evaluator);
    }

    /// Sets the function up for calls, unless it is set up already.
    fn ready(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(evaluator) = self.caller.evaluator.get() {
            evaluator.bind(py).call_method0("ready")?;
        }
        Ok(())
    }

    /// Computes a request that another process encoded, and returns the encoded answer.
    fn answer<'py>(&self, py: Python<'py>, request: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let rows = py.detach(|| frame::decode(request)).map_err(arrow_error)?;
        let answer = self.caller.answer(py, rows)?;
        let bytes = py.detach(|| frame::encode_answer(&self.value, answer));
        Ok(PyBytes::new(py, &bytes.map_err(arrow_error)?))
    }

    /// Returns the ids of the function's worker processes.
    fn processes(&self) -> Vec<u32> {
        self.declared.processes()
    }
}

/// Creates a call of a Python function in an expression. `function` is the object that
/// `forebay.udf` returned. That object keeps one [`Function`] per process.
pub(crate) fn call(function: &Bound<'_, PyAny>, arguments: Vec<Expr>) -> PyResult<Expr> {
    let function = function.call_method0("_function")?;
    let function = Arc::clone(&function.cast::<Function>()?.get().declared);
    Ok(declare(function).call(arguments))
}
