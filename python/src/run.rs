//! A run, batch by batch.

use std::mem::{forget, replace, swap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay::{RunStats, Token};
use forebay_runtime::cpu::cpu_time;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tokio::time::timeout;

use crate::batch::RawBatch;
use crate::error;
use crate::runtime;
use crate::udf_lease::Lease;
use crate::wait::SLICE;

/// How long a stopped run may take to finish what it is computing.
const GRACE: Duration = Duration::from_secs(5);

/// A run in progress. It belongs to the process that started it.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct Run {
    process: u32,
    state: Mutex<State>,
    steps: Option<u64>,
    seed: u64,
    begun: (Instant, Duration),
}

/// The run, while it goes on, and what was handed out of it.
#[derive(Debug)]
struct State {
    run: Option<forebay::Run>,
    /// While it lasts, Python functions may be called; it ends first, so that nothing waits for their processes.
    lease: Option<Lease>,
    rows: u64,
    batches: u64,
    bytes: u64,
    first: Option<Duration>,
    /// What the run said last.
    last: (RunStats, Option<(u64, u64)>, Duration, Duration),
    /// What a run has to be given to go on behind what was handed out, and behind all of it but the last batch.
    token: Token,
    before: Token,
    /// The last batch, if it was put back.
    back: Option<Py<RawBatch>>,
}

impl State {
    /// Counts a batch that is handed out.
    fn hand_out(&mut self, batch: &RawBatch, token: Token) {
        self.before = replace(&mut self.token, token);
        self.rows += batch.rows();
        self.batches += 1;
        self.bytes += batch.bytes();
    }
}

impl Run {
    /// A run that was started in this process.
    pub(crate) fn new(run: forebay::Run, lease: Lease) -> Self {
        Self {
            process: std::process::id(),
            steps: run.steps(),
            seed: run.seed(),
            begun: (Instant::now(), cpu_time()),
            state: Mutex::new(State {
                token: run.beginning().clone(),
                before: run.beginning().clone(),
                back: None,
                run: Some(run),
                lease: Some(lease),
                rows: 0,
                batches: 0,
                bytes: 0,
                first: None,
                last: Default::default(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the run says now; what it said last, once it has ended.
    fn ask(&self, state: &mut State) {
        if let Some(run) = &state.run {
            let (wall, cpu) = (self.begun.0.elapsed(), cpu_time());
            let cpu = cpu.saturating_sub(self.begun.1);
            state.last = (run.stats(), run.cached(), wall, cpu);
        }
    }

    /// Takes what there is of the run in a slice of time.
    fn poll(&self, handle: &tokio::runtime::Handle) -> Polled {
        let mut state = self.state();
        if let Some(batch) = state.back.take() {
            // The token behind it stands where the one before it does otherwise.
            let token = state.before.clone();
            state.hand_out(batch.get(), token);
            return Polled::Again(batch);
        }
        let Some(run) = state.run.as_mut() else {
            return Polled::Ended;
        };
        let polled = handle.block_on(async { timeout(SLICE, run.next()).await });
        match polled {
            Err(_) => Polled::Nothing,
            Ok(Some(Ok(batch))) => {
                let token = batch.token();
                let batch = RawBatch::of(batch);
                state.hand_out(&batch, token);
                state.first.get_or_insert_with(|| self.begun.0.elapsed());
                Polled::Batch(Box::new(batch))
            }
            Ok(ended) => {
                self.ask(&mut state);
                let lease = state.lease.take();
                if let Some(run) = state.run.take() {
                    drop(state);
                    drop(lease);
                    stop(handle, run);
                }
                match ended {
                    Some(Err(error)) => Polled::Failed(error),
                    _ => Polled::Ended,
                }
            }
        }
    }
}

enum Polled {
    Batch(Box<RawBatch>),
    Again(Py<RawBatch>),
    Nothing,
    Failed(forebay::Error),
    Ended,
}

/// Waits for the end of a run's threads.
fn stop(handle: &tokio::runtime::Handle, run: forebay::Run) {
    // What takes longer ends by itself.
    let _ = handle.block_on(async { timeout(GRACE, run.stop()).await });
}

#[pymethods]
impl Run {
    /// The next batch; nothing at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Py<RawBatch>>> {
        if self.process != std::process::id() {
            return Err(error::config(
                py,
                "this iterator was begun before the process forked, and its threads are in the parent; \
                 call iter(pipeline) in the child",
            ));
        }
        let handle = runtime::handle(py)?;
        loop {
            match py.detach(|| self.poll(&handle)) {
                Polled::Batch(batch) => return Py::new(py, *batch).map(Some),
                Polled::Again(batch) => return Ok(Some(batch)),
                Polled::Nothing => py.check_signals()?,
                Polled::Failed(error) => return Err(error::exception(py, &error, None)),
                Polled::Ended => return Ok(None),
            }
        }
    }

    /// Takes back the batch that was handed out last: it is the next one again.
    fn put_back(&self, py: Python<'_>, batch: Py<RawBatch>) {
        py.detach(|| {
            let (rows, bytes) = (batch.get().rows(), batch.get().bytes());
            let mut state = self.state();
            state.rows = state.rows.saturating_sub(rows);
            state.batches = state.batches.saturating_sub(1);
            state.bytes = state.bytes.saturating_sub(bytes);
            let State { token, before, .. } = &mut *state;
            swap(token, before);
            state.back = Some(batch);
        });
    }

    /// Stops the run and waits for its threads.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.process != std::process::id() {
            return Ok(());
        }
        let handle = runtime::handle(py)?;
        py.detach(|| {
            let mut state = self.state();
            self.ask(&mut state);
            let (run, lease) = (state.run.take(), state.lease.take());
            state.back = None;
            drop(state);
            drop(lease);
            if let Some(run) = run {
                stop(&handle, run);
            }
        });
        Ok(())
    }

    /// Batches to come in all, where known.
    #[getter]
    fn steps(&self) -> Option<u64> {
        self.steps
    }

    /// The seed in force.
    #[getter]
    fn seed(&self) -> u64 {
        self.seed
    }

    /// What a run has to be given to go on behind the batch that was handed out last, or at the beginning.
    fn token(&self, py: Python<'_>) -> PyResult<String> {
        let token = py.detach(|| self.state().token.to_json());
        token.map_err(|error| error::exception(py, &error.into(), None))
    }

    /// What was handed out so far, and what became of failed rows.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (counts, last, first) = py.detach(|| {
            let mut state = self.state();
            self.ask(&mut state);
            let counts = (state.rows, state.batches, state.bytes);
            (counts, state.last.clone(), state.first)
        });
        let (stats, cached, wall, cpu) = last;
        let said = PyDict::new(py);
        said.set_item("rows", counts.0)?;
        said.set_item("batches", counts.1)?;
        said.set_item("bytes", counts.2)?;
        said.set_item("skipped", stats.skipped)?;
        said.set_item("replaced", stats.replaced)?;
        said.set_item("nulled", stats.nulled)?;
        let failures = PyList::empty(py);
        for failure in &stats.failures {
            let row = PyDict::new(py);
            error::failure_attributes(failure, &row)?;
            failures.append(row)?;
        }
        said.set_item("failures", failures)?;
        said.set_item("cache_hits", cached.map(|(read, _)| read))?;
        said.set_item("cache_misses", cached.map(|(_, computed)| computed))?;
        said.set_item("wall_seconds", wall.as_secs_f64())?;
        said.set_item("cpu_seconds", cpu.as_secs_f64())?;
        said.set_item("first_batch_seconds", first.map(|f| f.as_secs_f64()))?;
        Ok(said)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let lease = state.lease.take();
        let Some(run) = state.run.take() else {
            return;
        };
        if self.process != std::process::id() {
            // Its threads and its locks are the parent's.
            forget((run, lease));
            return;
        }
        Python::attach(|py| match runtime::handle(py) {
            Ok(handle) => py.detach(|| {
                drop(lease);
                stop(&handle, run);
            }),
            Err(_) => drop(run),
        });
    }
}
