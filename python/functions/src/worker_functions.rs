//! The Python functions of a worker of a cluster.

use std::sync::Arc;
use std::time::Duration;

use forebay_udfs::{DeclaredFunction, HostFunctions};

use crate::code::FunctionCode;
use crate::events::Events;
use crate::settings::{CrewSettings, WorkerRules};
use crate::{Interpreter, PythonFunction};

/// Maximum number of processes of a function, whatever its client asks for.
const MAX_PROCESSES: usize = 256;

/// Number of processes that may be lost with the same rows before the rows fail.
const RETRIES: u32 = 2;

/// Default time without rows after which processes end. A training loop that validates or saves a
/// model for that long sets its functions up again.
const IDLE: Duration = Duration::from_secs(300);

/// Runs the Python functions that clients send, in processes of an interpreter. This process never
/// unpickles them.
#[derive(Debug)]
pub struct WorkerFunctions {
    interpreter: Interpreter,
    events: Arc<Events>,
    idle: Duration,
}

impl WorkerFunctions {
    /// Creates the functions of a worker.
    pub fn new(interpreter: Interpreter) -> Self {
        Self {
            interpreter,
            events: Arc::default(),
            idle: IDLE,
        }
    }

    /// Sets the time without rows after which processes end.
    #[must_use]
    pub fn with_idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }
}

impl HostFunctions for WorkerFunctions {
    fn decode(&self, code: &[u8]) -> Result<Arc<dyn DeclaredFunction>, String> {
        let FunctionCode {
            versions,
            declaration,
            pickled,
        } = FunctionCode::decode(code)?;
        self.interpreter.check(&versions)?;
        let crew = CrewSettings {
            processes: declaration.processes.unwrap_or(1).clamp(1, MAX_PROCESSES),
            command: self.interpreter.command(),
            payload: pickled,
            worker: Some(WorkerRules {
                printed: Arc::default(),
                events: Arc::clone(&self.events),
                retries: RETRIES,
                idle: self.idle,
            }),
        };
        Ok(Arc::new(PythonFunction::of_worker(declaration, crew)))
    }

    fn events(&self) -> Vec<String> {
        self.events.latest()
    }
}
