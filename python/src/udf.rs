//! A Python function in a plan: its declaration, and the computation of its rows.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::{ArrayRef, RecordBatch, StructArray, new_empty_array, new_null_array};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, Result, plan_err};
use datafusion::logical_expr::ScalarFunctionArgs;
use forebay_udfs::{DeclaredFunction, RowFailure};
use pyo3::prelude::*;

use crate::column::arrow_error;
use crate::udf_build::build;
use crate::udf_crew::{Crew, ENDED};
use crate::udf_frame::{self as frame, Answer};
use crate::udf_rows::ArgumentRows;
use crate::udf_worker::Spawn;

/// An error of a Python function that does not belong to a row, such as a result with a wrong
/// number of rows. The error ends the run under any `on_error`.
#[derive(Debug)]
pub(crate) struct Fault {
    /// Name of the function.
    pub(crate) function: String,
    /// The message, possibly followed by the stack frames of the user's code.
    pub(crate) message: String,
}

/// The result of a call for some consecutive rows: the number of rows, the columns (`None` if all
/// rows failed), and the indices of the failed rows with the causes of their failures.
type PartialAnswer<'py> = (usize, Option<Vec<Bound<'py, PyAny>>>, Vec<(usize, String)>);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.function, self.message)
    }
}

impl std::error::Error for Fault {}

/// A Python function and its declaration.
#[derive(Debug)]
pub(crate) struct PythonFunction {
    pub(crate) name: String,
    pub(crate) version: u32,
    pub(crate) deterministic: bool,
    pub(crate) ns_per_row: Option<u64>,
    /// Number of arguments, if declared.
    pub(crate) arity: Option<usize>,
    pub(crate) columns: Vec<Field>,
    /// True if the value is a struct of the columns, false if the value is the only column.
    pub(crate) is_struct: bool,
    pub(crate) value: FieldRef,
    /// Maximum number of rows per call, if declared.
    pub(crate) rows: Option<usize>,
    /// The Python object that calls the function; set once the function's types are known.
    pub(crate) evaluator: OnceLock<Py<PyAny>>,
    /// Number of worker processes, and the command that starts one; `None` to compute in this
    /// process.
    pub(crate) workers: Option<(usize, Spawn)>,
    pub(crate) duty: Mutex<Duty>,
}

/// The current use of a function by runs.
#[derive(Debug, Default)]
pub(crate) struct Duty {
    leases: usize,
    crew: Option<Arc<Crew>>,
    /// Crews that were replaced because a process could not be set up. Their other processes finish
    /// the chunks that they are computing.
    broken: Vec<Arc<Crew>>,
}

impl PythonFunction {
    fn duty(&self) -> MutexGuard<'_, Duty> {
        self.duty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the function's name.
    pub(crate) fn label(&self) -> &str {
        &self.name
    }

    /// Returns the ids of the function's worker processes.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let crew = self.duty().crew.clone();
        crew.map(|crew| crew.processes()).unwrap_or_default()
    }

    /// Registers a run that calls the function.
    pub(crate) fn hire(&self) {
        self.duty().leases += 1;
    }

    /// Unregisters a run that calls the function. The worker processes end with the last run.
    pub(crate) fn dismiss(&self) {
        let mut duty = self.duty();
        duty.leases = duty.leases.saturating_sub(1);
        let mut crews = Vec::new();
        if duty.leases == 0 {
            crews.append(&mut duty.broken);
            crews.extend(duty.crew.take());
        }
        drop(duty);
        for crew in crews {
            crew.close();
        }
    }

    /// Returns the worker processes, starting them if necessary; `None` if the function is computed
    /// in this process.
    fn crew(&self) -> Result<Option<Arc<Crew>>, String> {
        let mut duty = self.duty();
        if duty.leases == 0 {
            return Err(ENDED.to_owned());
        }
        let Some((number, spawn)) = &self.workers else {
            return Ok(None);
        };
        if let Some(broken) = duty.crew.take_if(|crew| crew.is_broken()) {
            duty.broken.push(broken);
        }
        if duty.crew.is_none() {
            duty.crew = Some(Crew::start(&self.name, *number, spawn.clone())?);
        }
        Ok(duty.crew.clone())
    }

    fn fault(&self, message: String) -> DataFusionError {
        DataFusionError::External(Box::new(Fault {
            function: self.name.clone(),
            message: forebay_udfs::bounded(message),
        }))
    }

    fn compute(&self, rows: &RecordBatch) -> Result<Vec<(usize, Answer)>, String> {
        let crew = self.crew()?;
        let number = self.workers.as_ref().map_or(1, |(number, _)| *number);
        let size = self.chunk(rows.num_rows(), number);
        let begins = (0..rows.num_rows()).step_by(size);
        let chunk = |begin: usize| rows.slice(begin, size.min(rows.num_rows() - begin));
        if let Some(crew) = crew {
            let answers = crew.compute(begins.clone().map(chunk).collect())?;
            return Ok(begins.zip(answers).collect());
        }
        let mut answers = Vec::new();
        for begin in begins {
            if self.duty().leases == 0 {
                return Err(ENDED.to_owned());
            }
            let answer = Python::attach(|py| {
                let answer = self.call(py, chunk(begin));
                answer.map_err(|error| error.value(py).to_string())
            });
            answers.push((begin, answer?));
        }
        Ok(answers)
    }

    /// Returns the number of rows per call. It depends only on the declaration and on `rows`. So
    /// even a function that, against the rules, looks at other rows gives reproducible results.
    fn chunk(&self, rows: usize, workers: usize) -> usize {
        /// Longest and shortest useful duration of a call, in nanoseconds: the run must respond to
        /// interrupts between calls, and the overhead of a call should be small.
        const CALL: (u64, u64) = (50_000_000, 2_000_000);
        /// Minimum number of calls per process, so that all processes finish at about the same
        /// time.
        const SHARES: usize = 8;
        let within = |ns: u64, most: usize| match self.ns_per_row {
            Some(cost) => usize::try_from(ns / cost.max(1))
                .unwrap_or(most)
                .clamp(1, most),
            None => most / 8,
        };
        let fair = rows.div_ceil(workers);
        let size = match (self.rows, self.workers.is_some()) {
            (Some(own), _) => own,
            (None, false) => within(CALL.0, 8192),
            (None, true) => {
                let share = rows.div_ceil(SHARES * workers);
                share.max(within(CALL.1, 1024)).min(within(CALL.0, 8192))
            }
        };
        size.min(fair).max(1)
    }

    /// Calls the function over some rows in this process.
    pub(crate) fn call(&self, py: Python<'_>, rows: RecordBatch) -> PyResult<Answer> {
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
                None => new_null_array(self.value.data_type(), rows),
            });
            failed.extend(failures.into_iter().map(|(row, cause)| RowFailure {
                row: first + row,
                operator: self.name.clone(),
                cause,
            }));
            first += rows;
        }
        Ok((whole(&arrays).map_err(arrow_error)?, failed))
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
        match self.value.data_type() {
            DataType::Struct(fields) if self.is_struct => {
                let parts = StructArray::try_new_with_length(fields.clone(), built, None, rows);
                Ok(Arc::new(parts.map_err(arrow_error)?))
            }
            _ => Ok(built.swap_remove(0)),
        }
    }
}

fn whole(arrays: &[ArrayRef]) -> Result<ArrayRef, arrow::error::ArrowError> {
    match arrays {
        [only] => Ok(Arc::clone(only)),
        several => concat(&several.iter().map(|a| a.as_ref()).collect::<Vec<_>>()),
    }
}

impl DeclaredFunction for PythonFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn is_deterministic(&self) -> bool {
        self.deterministic
    }

    fn ns_per_row(&self) -> Option<u64> {
        // Worker processes reduce the wall time of a run per row, but not the CPU time.
        self.ns_per_row
    }

    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        match self.arity {
            Some(arity) if arity != arguments.len() => plan_err!(
                "{} reads {arity} columns, found {} arguments",
                self.name,
                arguments.len()
            ),
            _ => Ok(Arc::clone(&self.value)),
        }
    }

    fn invoke_rows(&self, args: ScalarFunctionArgs) -> Result<(ArrayRef, Vec<RowFailure>)> {
        let rows = args.number_rows;
        if rows == 0 {
            return Ok((new_empty_array(self.value.data_type()), Vec::new()));
        }
        let columns = args.args.into_iter().map(|arg| arg.into_array(rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let batch = frame::arguments(&args.arg_fields, columns, rows)?;
        let answers = self.compute(&batch).map_err(|why| self.fault(why))?;
        let mut arrays = Vec::with_capacity(answers.len());
        let mut failed = Vec::new();
        for (begin, (array, failures)) in answers {
            arrays.push(array);
            failed.extend(failures.into_iter().map(|failure| RowFailure {
                row: failure.row + begin,
                ..failure
            }));
        }
        Ok((whole(&arrays)?, failed))
    }
}

/// Returns `function` as a Python function; `None` if `function` is not a Python function.
pub(crate) fn of(function: &Arc<dyn DeclaredFunction>) -> Option<Arc<PythonFunction>> {
    let any: Arc<dyn Any + Send + Sync> = Arc::clone(function) as _;
    any.downcast::<PythonFunction>().ok()
}
