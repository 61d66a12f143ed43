//! Settings of the processes of a function.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use crate::events::Events;
use crate::printed::PrintedText;

/// Number and command of the processes of a function.
#[derive(Debug, Clone)]
pub struct CrewSettings {
    /// Number of processes.
    pub processes: usize,
    /// The command that starts a process: the interpreter, followed by its arguments.
    pub command: Vec<OsString>,
    /// The pickled function.
    pub payload: Vec<u8>,
    /// Rules of a worker of a cluster; `None` in the process of the training loop.
    pub worker: Option<WorkerRules>,
}

/// Rules of the processes on a worker of a cluster.
#[derive(Debug, Clone)]
pub struct WorkerRules {
    /// Receives what the function prints. It goes to the standard error of this process otherwise.
    pub printed: Arc<PrintedText>,
    /// Receives the losses of processes.
    pub events: Arc<Events>,
    /// Number of processes that may be lost while they compute the same rows, before the rows fail.
    /// Without rules, the first loss is an error.
    pub retries: u32,
    /// Time without rows after which the processes end. They are started again when rows come.
    pub idle: Duration,
}
