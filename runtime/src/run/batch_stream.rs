//! The batches of a started run.

use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::driver::Driver;
use super::job_run::JobRun;
use crate::error::{Error, Result};
use crate::tail::{Batch, RunStats};
use crate::task;

impl JobRun {
    /// Starts the run, which works in the background until it ends or the stream is dropped.
    pub fn start(self) -> BatchStream {
        let run = Arc::new(self);
        let (sender, batches) = mpsc::channel(1);
        let stats = Arc::new(Mutex::new(RunStats::default()));
        let driver = Driver::new(Arc::clone(&run), sender, Arc::clone(&stats));
        let task = task::start(driver.drive());
        BatchStream {
            run,
            batches,
            stats,
            task: Some(task),
        }
    }
}

/// The batches of a run in progress.
#[derive(Debug)]
pub struct BatchStream {
    run: Arc<JobRun>,
    batches: mpsc::Receiver<Result<Batch>>,
    stats: Arc<Mutex<RunStats>>,
    /// The task that drives the run; `None` once its end was observed.
    task: Option<JoinHandle<()>>,
}

impl BatchStream {
    /// Returns the run.
    pub fn run(&self) -> &JobRun {
        &self.run
    }

    /// Returns the next batch, or `None` at the end. An error ends the run.
    pub async fn next(&mut self) -> Option<Result<Batch>> {
        if let Some(batch) = self.batches.recv().await {
            return Some(batch);
        }
        // The channel also closes if the run panics.
        let ended = self.task.as_mut()?.await;
        self.task = None;
        let why = ended.err()?;
        Some(Err(Error::Engine(task::lost("the run", why))))
    }

    /// Returns how many rows of the cache point were read from the cache and how many were computed so far; `None`
    /// without a cache.
    pub fn cached(&self) -> Option<(u64, u64)> {
        let cached = self.run.job.plan.reader.cached.as_ref();
        cached.map(|cached| cached.counts())
    }

    /// Returns statistics of the batches sent so far and of failed rows.
    pub fn stats(&self) -> RunStats {
        self.stats.lock().map(|s| s.clone()).unwrap_or_default()
    }

    /// Stops the run, and returns once none of its tasks is running. Dropping the stream also stops
    /// the run, but segments in progress finish in the background.
    pub async fn stop(mut self) {
        let pool = self.run.job.env().pool.clone();
        if let Some(task) = &mut self.task {
            task.abort();
            // The task was aborted or had already ended; neither is an error here.
            let _ = task.await;
        }
        self.task = None;
        drop(self);
        pool.idle().await;
    }
}

impl Drop for BatchStream {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
