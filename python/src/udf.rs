//! A Python function in a plan: what it declares, and how its rows are computed.

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
use crate::udf_class::Rows;
use crate::udf_crew::{Crew, ENDED};
use crate::udf_frame::{self as frame, Answer};
use crate::udf_worker::Spawn;

/// A function's own mistake, which ends the run whatever its policy.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The function's name.
    pub(crate) function: String,
    /// What is wrong, and perhaps the user's frames.
    pub(crate) message: String,
}

/// What a call gives: rows, columns unless all of them failed, and the rows that failed with why.
type Piece<'py> = (usize, Option<Vec<Bound<'py, PyAny>>>, Vec<(usize, String)>);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.function, self.message)
    }
}

impl std::error::Error for Fault {}

/// The function.
#[derive(Debug)]
pub(crate) struct PythonFunction {
    pub(crate) name: String,
    pub(crate) version: u32,
    pub(crate) deterministic: bool,
    pub(crate) ns_per_row: Option<u64>,
    /// Number of its arguments, where it says.
    pub(crate) arity: Option<usize>,
    pub(crate) columns: Vec<Field>,
    /// Whether the value is a struct of the columns, or the one column.
    pub(crate) is_struct: bool,
    pub(crate) value: FieldRef,
    /// Rows of a call at most, where it says.
    pub(crate) rows: Option<usize>,
    /// Calls it; given once its types are known.
    pub(crate) evaluator: OnceLock<Py<PyAny>>,
    /// How many processes compute it, and how they start; else this process does.
    pub(crate) workers: Option<(usize, Spawn)>,
    pub(crate) duty: Mutex<Duty>,
}

/// For how many runs it computes.
#[derive(Debug, Default)]
pub(crate) struct Duty {
    leases: usize,
    crew: Option<Arc<Crew>>,
    /// Crews that another one was started for; they finish what they have.
    broken: Vec<Arc<Crew>>,
}

impl PythonFunction {
    fn duty(&self) -> MutexGuard<'_, Duty> {
        self.duty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its name.
    pub(crate) fn label(&self) -> &str {
        &self.name
    }

    /// Ids of its worker processes.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let crew = self.duty().crew.clone();
        crew.map(|crew| crew.processes()).unwrap_or_default()
    }

    /// One more run needs it.
    pub(crate) fn hire(&self) {
        self.duty().leases += 1;
    }

    /// A run needs it no longer. With the last one its processes end.
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

    /// The worker processes, started if need be; none where this process computes.
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

    /// Rows of a call. It depends on what is declared alone, so that a function which (against the rules) looks
    /// at other rows does at least the same every time.
    fn chunk(&self, rows: usize, workers: usize) -> usize {
        /// Nanoseconds of a call at most, so that a run can be stopped, and at least, to be worth its while.
        const CALL: (u64, u64) = (50_000_000, 2_000_000);
        /// Calls that each process should have, so that all of them end together.
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

    /// Calls the function in this process.
    pub(crate) fn call(&self, py: Python<'_>, rows: RecordBatch) -> PyResult<Answer> {
        let Some(evaluator) = self.evaluator.get() else {
            return Err(pyo3::exceptions::PyRuntimeError::new_err(
                "nothing calls the function",
            ));
        };
        let pieces = evaluator.bind(py).call_method1("evaluate", (Rows(rows),))?;
        let mut arrays = Vec::new();
        let mut failed = Vec::new();
        let mut first = 0;
        for piece in pieces.try_iter()? {
            let (rows, columns, raised): Piece<'_> = piece?.extract()?;
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

    /// The value that columns make. Rows of which a column's value is wrong have failed.
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
        // Processes work side by side, so a row takes less of the run's time; but as much of the machine's.
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

/// A Python function as the plan's declared function.
pub(crate) fn of(function: &Arc<dyn DeclaredFunction>) -> Option<Arc<PythonFunction>> {
    let any: Arc<dyn Any + Send + Sync> = Arc::clone(function) as _;
    any.downcast::<PythonFunction>().ok()
}
