//! A Python function in a plan.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use arrow::array::{ArrayRef, RecordBatch, new_empty_array};
use arrow::compute::concat;
use arrow::datatypes::FieldRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::ScalarFunctionArgs;
use forebay_udfs::{DeclaredFunction, FunctionFault, RowFailure};

use crate::Declaration;
use crate::crew::Crew;
use crate::frame::{self, Answer};
use crate::queue::CrewError;
use crate::settings::CrewSettings;

/// A Python function in a process that has an interpreter.
pub trait Caller: Any + fmt::Debug + Send + Sync {
    /// Calls the function over some rows.
    ///
    /// # Errors
    /// Fails if the function is wrong, rather than a row, with the message.
    fn call(&self, rows: RecordBatch) -> std::result::Result<Answer, String>;

    /// Returns the function with its code, for the workers of a cluster.
    ///
    /// # Errors
    /// Fails if the function cannot be pickled, with the reason.
    fn code(&self) -> std::result::Result<Vec<u8>, String>;
}

/// A Python function in a plan, which this process computes, or processes that it starts.
#[derive(Debug)]
pub struct PythonFunction {
    declaration: Declaration,
    /// The function in this process; `None` on a worker of a cluster.
    caller: Option<Arc<dyn Caller>>,
    /// The processes that compute the function; `None` if this process does.
    crew: Option<CrewSettings>,
    duty: Mutex<Duty>,
}

/// The current use of a function by runs.
#[derive(Debug, Default)]
struct Duty {
    leases: usize,
    crew: Option<Arc<Crew>>,
    /// Crews that were replaced because a process could not be set up. Their other processes finish
    /// the chunks that they are computing.
    broken: Vec<Arc<Crew>>,
}

impl Duty {
    /// Ends the processes, and waits until all have ended.
    fn close(self) {
        for crew in self.broken.iter().chain(&self.crew) {
            crew.close();
        }
    }
}

/// Ends the processes in a thread of their own, because tasks that must not wait drop functions.
fn close_aside(duty: Duty) {
    if duty.crew.is_none() && duty.broken.is_empty() {
        return;
    }
    let close = move || duty.close();
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing waits for the thread, and the processes end without it once their pipes are closed"
    )]
    let started = Builder::new().name("forebay-udf".to_owned()).spawn(close);
    if let Err(error) = started {
        tracing::warn!(target: "forebay::python", "cannot start a thread: {error}");
    }
}

impl PythonFunction {
    /// Creates a function that `caller` computes in this process or, with `crew`, processes compute.
    pub fn new(
        declaration: Declaration,
        caller: Arc<dyn Caller>,
        crew: Option<CrewSettings>,
    ) -> Self {
        Self {
            declaration,
            caller: Some(caller),
            crew,
            duty: Mutex::default(),
        }
    }

    /// Creates a function that processes compute whenever they are needed, until it is dropped.
    pub(crate) fn of_worker(declaration: Declaration, crew: CrewSettings) -> Self {
        let function = Self {
            declaration,
            caller: None,
            crew: Some(crew),
            duty: Mutex::default(),
        };
        function.hire();
        function
    }

    /// Returns the function that a plan calls as `function`; `None` if it is not a Python function.
    pub fn of(function: &Arc<dyn DeclaredFunction>) -> Option<Arc<Self>> {
        let any: Arc<dyn Any + Send + Sync> = Arc::clone(function) as _;
        any.downcast::<Self>().ok()
    }

    /// Returns the ids of the processes.
    pub fn processes(&self) -> Vec<u32> {
        let crew = self.duty().crew.clone();
        crew.map(|crew| crew.processes()).unwrap_or_default()
    }

    /// Registers a run that calls the function.
    pub fn hire(&self) {
        self.duty().leases += 1;
    }

    /// Unregisters a run that calls the function. The processes end with the last run.
    pub fn dismiss(&self) {
        let mut duty = self.duty();
        duty.leases = duty.leases.saturating_sub(1);
        if duty.leases > 0 {
            return;
        }
        let ended = std::mem::take(&mut *duty);
        drop(duty);
        ended.close();
    }

    fn duty(&self) -> MutexGuard<'_, Duty> {
        self.duty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the processes, starting them if necessary.
    fn crew(&self, settings: &CrewSettings) -> std::result::Result<Arc<Crew>, CrewError> {
        let mut duty = self.duty();
        if duty.leases == 0 {
            return Err(CrewError::Ended);
        }
        let why = duty.crew.as_ref().and_then(|crew| crew.broken());
        if why.is_some() {
            let replaced = duty.crew.take();
            // The threads of a crew that has retired end by themselves.
            if why != Some(CrewError::Retired) {
                duty.broken.extend(replaced);
            }
        }
        if let Some(crew) = &duty.crew {
            return Ok(Arc::clone(crew));
        }
        let crew = Crew::start(&self.declaration.name, settings.clone())?;
        duty.crew = Some(Arc::clone(&crew));
        Ok(crew)
    }

    fn compute(&self, rows: &RecordBatch) -> std::result::Result<Vec<(usize, Answer)>, CrewError> {
        let size = self.declaration.chunk(rows.num_rows());
        let begins = (0..rows.num_rows()).step_by(size);
        let chunk = |begin: usize| rows.slice(begin, size.min(rows.num_rows() - begin));
        if let Some(settings) = &self.crew {
            let chunks: Vec<_> = begins.clone().map(chunk).collect();
            loop {
                match self.crew(settings)?.compute(chunks.clone()) {
                    Err(CrewError::Retired) => {}
                    answers => return Ok(begins.zip(answers?).collect()),
                }
            }
        }
        let Some(caller) = &self.caller else {
            return Err(CrewError::SetUp("it has no process".to_owned()));
        };
        let mut answers = Vec::new();
        for begin in begins {
            if self.duty().leases == 0 {
                return Err(CrewError::Ended);
            }
            answers.push((begin, caller.call(chunk(begin)).map_err(CrewError::Call)?));
        }
        Ok(answers)
    }

    fn fault(&self, error: &CrewError) -> DataFusionError {
        let is_on_worker = self.crew.as_ref().is_some_and(|crew| crew.worker.is_some());
        DataFusionError::External(Box::new(FunctionFault {
            function: self.declaration.name.clone(),
            message: forebay_udfs::bounded(error.message()),
            is_of_machine: is_on_worker && matches!(error, CrewError::SetUp(_)),
        }))
    }
}

/// Joins the values of consecutive rows.
///
/// # Errors
/// Fails if their types differ.
pub fn joined(arrays: &[ArrayRef]) -> std::result::Result<ArrayRef, arrow::error::ArrowError> {
    match arrays {
        [only] => Ok(Arc::clone(only)),
        several => concat(&several.iter().map(|a| a.as_ref()).collect::<Vec<_>>()),
    }
}

impl Drop for PythonFunction {
    fn drop(&mut self) {
        // A function of a worker is its own run. Elsewhere, runs dismiss a function before they drop it,
        // and in a forked child, its processes are those of the parent.
        if self.caller.is_none() {
            close_aside(std::mem::take(&mut *self.duty()));
        }
    }
}

impl DeclaredFunction for PythonFunction {
    fn name(&self) -> &str {
        &self.declaration.name
    }

    fn version(&self) -> u32 {
        self.declaration.version
    }

    fn is_deterministic(&self) -> bool {
        self.declaration.deterministic
    }

    fn ns_per_row(&self) -> Option<u64> {
        // Processes reduce the wall time of a run per row, but not the CPU time.
        self.declaration.ns_per_row
    }

    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        self.declaration.return_field(arguments)
    }

    fn invoke_rows(&self, args: ScalarFunctionArgs) -> Result<(ArrayRef, Vec<RowFailure>)> {
        let rows = args.number_rows;
        if rows == 0 {
            let empty = new_empty_array(self.declaration.value.data_type());
            return Ok((empty, Vec::new()));
        }
        let columns = args.args.into_iter().map(|arg| arg.into_array(rows));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let batch = frame::arguments(&args.arg_fields, columns, rows)?;
        let answers = self.compute(&batch).map_err(|error| self.fault(&error))?;
        let mut arrays = Vec::with_capacity(answers.len());
        let mut failed = Vec::new();
        for (begin, (array, failures)) in answers {
            arrays.push(array);
            failed.extend(failures.into_iter().map(|failure| RowFailure {
                row: failure.row + begin,
                ..failure
            }));
        }
        Ok((joined(&arrays)?, failed))
    }

    fn code(&self) -> std::result::Result<Vec<u8>, String> {
        match &self.caller {
            Some(caller) => caller.code(),
            None => Err("it was sent here by another process".to_owned()),
        }
    }

    fn take_printed(&self) -> String {
        let rules = self.crew.as_ref().and_then(|crew| crew.worker.as_ref());
        rules.map(|rules| rules.printed.take()).unwrap_or_default()
    }
}
