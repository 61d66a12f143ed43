//! Calls a Python function in this process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, RecordBatch, StructArray, new_null_array};
use arrow::datatypes::{DataType, Field};
use forebay_python_functions::Declaration;
use forebay_python_functions::code::{FunctionCode, PickleVersions};
use forebay_python_functions::frame::Answer;
use forebay_python_functions::function::{Caller, joined};
use forebay_udfs::RowFailure;
use pyo3::prelude::*;

use super::build::build;
use super::rows::ArgumentRows;
use crate::column::arrow_error;

/// The result of a call for some consecutive rows: the number of rows, the columns (`None` if all
/// rows failed), and the indices of the failed rows with the causes of their failures.
type PartialAnswer<'py> = (usize, Option<Vec<Bound<'py, PyAny>>>, Vec<(usize, String)>);

/// A function in this process: its declaration, and the Python objects that call and pickle it.
pub(crate) struct PythonCaller {
    pub(crate) declaration: Declaration,
    pub(crate) columns: Vec<Field>,
    /// True if the value is a struct of the columns, false if the value is the only column.
    pub(crate) is_struct: bool,
    /// The object that calls the function; set once the function's types are known.
    pub(crate) evaluator: OnceLock<Py<PyAny>>,
    /// Returns the versions and the pickled function for the workers of a cluster.
    pub(crate) pickle: Py<PyAny>,
    /// The function with its code, once it was pickled.
    pub(crate) code: OnceLock<Vec<u8>>,
}

impl fmt::Debug for PythonCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PythonCaller({})", self.declaration.name)
    }
}

impl Caller for PythonCaller {
    fn call(&self, rows: RecordBatch) -> Result<Answer, String> {
        Python::attach(|py| {
            let answer = self.answer(py, rows);
            answer.map_err(|error| error.value(py).to_string())
        })
    }

    fn code(&self) -> Result<Vec<u8>, String> {
        if let Some(code) = self.code.get() {
            return Ok(code.clone());
        }
        let pickled: PyResult<(String, String, Vec<u8>)> =
            Python::attach(|py| self.pickle.call0(py)?.extract(py));
        let (python, cloudpickle, pickled) =
            pickled.map_err(|error| Python::attach(|py| error.value(py).to_string()))?;
        let code = FunctionCode {
            versions: PickleVersions {
                python,
                cloudpickle,
            },
            declaration: self.declaration.clone(),
            pickled,
        };
        let code = code.encode()?;
        Ok(self.code.get_or_init(|| code).clone())
    }
}

impl PythonCaller {
    /// Calls the function over some rows.
    pub(crate) fn answer(&self, py: Python<'_>, rows: RecordBatch) -> PyResult<Answer> {
        let Some(evaluator) = self.evaluator.get() else {
            return Err(pyo3::exceptions::PyRuntimeError::new_err(
                "the function has no evaluator",
            ));
        };
        let pieces = evaluator
            .bind(py)
            .call_method1("evaluate", (ArgumentRows(rows),))?;
        let mut arrays = Vec::new();
        let mut failed = Vec::new();
        let mut first = 0;
        for piece in pieces.try_iter()? {
            let (rows, columns, raised): PartialAnswer<'_> = piece?.extract()?;
            let mut failures: BTreeMap<usize, String> = raised.into_iter().collect();
            arrays.push(match columns {
                Some(columns) => self.value_of(rows, &columns, &mut failures)?,
                None => new_null_array(self.declaration.value.data_type(), rows),
            });
            failed.extend(failures.into_iter().map(|(row, cause)| RowFailure {
                row: first + row,
                operator: self.declaration.name.clone(),
                cause,
            }));
            first += rows;
        }
        Ok((joined(&arrays).map_err(arrow_error)?, failed))
    }

    /// Builds the function's value from columns. A row with a wrong value in any column fails.
    fn value_of(
        &self,
        rows: usize,
        columns: &[Bound<'_, PyAny>],
        failures: &mut BTreeMap<usize, String>,
    ) -> PyResult<ArrayRef> {
        let mut built = Vec::with_capacity(self.columns.len());
        for (field, parts) in self.columns.iter().zip(columns) {
            let name = field.name();
            let column = build(field, rows, parts).map_err(|error| {
                let why = error.value(parts.py());
                pyo3::exceptions::PyValueError::new_err(format!("column {name:?}: {why}"))
            });
            let (array, wrong) = column?;
            built.push(array);
            for (row, why) in wrong {
                let cause = || format!("TypeError: column {name:?}: {why}");
                failures.entry(row).or_insert_with(cause);
            }
        }
        match self.declaration.value.data_type() {
            DataType::Struct(fields) if self.is_struct => {
                let parts = StructArray::try_new_with_length(fields.clone(), built, None, rows);
                Ok(Arc::new(parts.map_err(arrow_error)?))
            }
            _ => Ok(built.swap_remove(0)),
        }
    }
}
