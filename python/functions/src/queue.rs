//! The queue of a crew: chunks to compute, and the processes that compute them.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arrow::array::RecordBatch;

use crate::frame::Answer;
use crate::process::Process;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) chunks: VecDeque<RowChunk>,
    pub(crate) processes: Vec<(Arc<Process>, bool)>,
    pub(crate) closed: bool,
    /// The reason why no further chunk will be computed; `None` as long as the crew works.
    pub(crate) broken: Option<CrewError>,
    /// Time of the latest chunk that arrived or was computed.
    pub(crate) latest: Option<Instant>,
}

/// Rows to compute, and the channel for the answer.
#[derive(Debug)]
pub(crate) struct RowChunk {
    pub(crate) index: usize,
    pub(crate) rows: RecordBatch,
    pub(crate) to: Sender<(usize, Result<Answer, CrewError>)>,
    /// Number of processes that were lost while they computed these rows.
    pub(crate) losses: u32,
    /// True once no caller waits for the chunk's answer. Such a chunk is skipped.
    pub(crate) dropped: Arc<AtomicBool>,
}

/// The reason why a crew has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CrewError {
    /// The run that needs the answer has ended.
    Ended,
    /// The processes ended because no rows came. Another crew can compute the rows.
    Retired,
    /// No process can be started, or the function cannot be set up in it.
    SetUp(String),
    /// A call failed as a whole, or its process was lost.
    Call(String),
}

impl CrewError {
    /// The message of the error of a run.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Ended => "the run has ended".to_owned(),
            Self::Retired => "its processes have ended".to_owned(),
            Self::SetUp(why) | Self::Call(why) => why.clone(),
        }
    }
}

impl Queue {
    /// Returns the reason why no chunk is computed any more.
    pub(crate) fn why_not(&self) -> Option<CrewError> {
        if self.closed {
            Some(CrewError::Ended)
        } else {
            self.broken.clone()
        }
    }

    /// Notes that a process is busy, or not.
    pub(crate) fn mark(&mut self, process: Option<&Process>, busy: bool) {
        let is_own = |p: &Process| process.is_some_and(|process| process.id == p.id);
        let own = self.processes.iter_mut().find(|(p, _)| is_own(p));
        if let Some((_, state)) = own {
            *state = busy;
            self.latest = Some(Instant::now());
        }
    }
}

pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
