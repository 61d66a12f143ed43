//! A run of a pipeline, which delivers its batches one by one.

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
use crate::log_records;
use crate::runtime;
use crate::udf::lease::FunctionLease;
use crate::wait::SLICE;

/// Maximum time to wait for a run's threads when the run is closed.
const GRACE: Duration = Duration::from_secs(5);

/// A run in progress. Only the process that started the run can use it.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct Run {
    process: u32,
    state: Mutex<RunState>,
    steps: Option<u64>,
    seed: u64,
    begun: (Instant, Duration),
}

/// The engine's run, and the state of the delivery to Python.
#[derive(Debug)]
struct RunState {
    run: Option<forebay::Run>,
    /// The permission to call the plan's Python functions. The permission is dropped before the run
    /// is stopped, so that the stop does not wait for the worker processes of these functions.
    lease: Option<FunctionLease>,
    rows: u64,
    batches: u64,
    bytes: u64,
    first: Option<Duration>,
    /// The statistics that the run reported last: its counts, the numbers of rows read from the
    /// cache and computed, and the wall time and CPU time since the start of the run.
    last: (RunStats, Option<(u64, u64)>, Duration, Duration),
    /// Token after the last delivered batch. The field `before` has the token before this batch.
    token: Token,
    before: Token,
    /// The last delivered batch, if it was put back.
    back: Option<Py<RawBatch>>,
}

impl RunState {
    /// Counts `batch` as delivered; `token` is the token after `batch`.
    fn hand_out(&mut self, batch: &RawBatch, token: Token) {
        self.before = replace(&mut self.token, token);
        self.rows += batch.rows();
        self.batches += 1;
        self.bytes += batch.bytes();
    }
}

impl Run {
    /// Wraps a run that this process has started; `lease` lets the run call the plan's Python
    /// functions.
    pub(crate) fn new(run: forebay::Run, lease: FunctionLease) -> Self {
        Self {
            process: std::process::id(),
            steps: run.steps(),
            seed: run.seed(),
            begun: (Instant::now(), cpu_time()),
            state: Mutex::new(RunState {
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

    fn state(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the statistics from the run, unless the run has ended.
    fn ask(&self, state: &mut RunState) {
        if let Some(run) = &state.run {
            let (wall, cpu) = (self.begun.0.elapsed(), cpu_time());
            let cpu = cpu.saturating_sub(self.begun.1);
            state.last = (run.stats(), run.cached(), wall, cpu);
        }
    }

    /// Waits for the next batch for at most one time slice.
    fn poll(&self, handle: &tokio::runtime::Handle) -> Polled {
        let mut state = self.state();
        if let Some(batch) = state.back.take() {
            // `put_back` swapped the tokens, so `before` is the token after this batch.
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

/// Stops a run, and waits for its threads to end.
fn stop(handle: &tokio::runtime::Handle, run: forebay::Run) {
    // A timeout is ignored: threads that are still running after [`GRACE`] end by themselves.
    let _ = handle.block_on(async { timeout(GRACE, run.stop()).await });
}

#[pymethods]
impl Run {
    /// Returns the next batch, or `None` at the end.
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
            // Passing records on may fail, which must not lose a batch or an error.
            log_records::pass_on(py)?;
            match py.detach(|| self.poll(&handle)) {
                Polled::Batch(batch) => return Py::new(py, *batch).map(Some),
                Polled::Again(batch) => return Ok(Some(batch)),
                Polled::Nothing => py.check_signals()?,
                Polled::Failed(error) => {
                    log_records::pass_on_beside(py);
                    return Err(error::exception(py, &error, None));
                }
                Polled::Ended => {
                    log_records::pass_on(py)?;
                    return Ok(None);
                }
            }
        }
    }

    /// Takes back the last delivered batch. The next call of `next` delivers this batch again.
    fn put_back(&self, py: Python<'_>, batch: Py<RawBatch>) {
        py.detach(|| {
            let (rows, bytes) = (batch.get().rows(), batch.get().bytes());
            let mut state = self.state();
            state.rows = state.rows.saturating_sub(rows);
            state.batches = state.batches.saturating_sub(1);
            state.bytes = state.bytes.saturating_sub(bytes);
            let RunState { token, before, .. } = &mut *state;
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

    /// Total number of batches that the run delivers; `None` if unknown.
    #[getter]
    fn steps(&self) -> Option<u64> {
        self.steps
    }

    /// The seed in effect.
    #[getter]
    fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the token with which a run resumes after the last delivered batch, or at the
    /// beginning if no batch was delivered.
    fn token(&self, py: Python<'_>) -> PyResult<String> {
        let token = py.detach(|| self.state().token.to_json());
        token.map_err(|error| error::exception(py, &error.into(), None))
    }

    /// Returns the counts of delivered rows and batches, the number of failed rows by outcome, the
    /// cache counts, and the times.
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
            // In a forked child, the run's threads do not exist, and the run's locks may be held
            // forever. So the run is not dropped.
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
