//! The driver of a run: takes computed segments in stream order, has the tail make batches of their
//! rows, and sends the batches to the consumer's stream.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::task::JoinHandle;

use super::computed::computed_by;
use super::job_run::JobRun;
use super::output::{Computed, Output};
use super::sequencer::Sequencer;
use super::work::{TakeReached, WorkItem};
use crate::channel::{ChannelRoom, Receiver, Sender, channel};
use crate::error::{Error, Result};
use crate::prefetch::ahead;
use crate::record_batch::batch_bytes;
use crate::segment::{OrderedSegment, ReadSegment};
use crate::tail::{Batch, RunStats};
use crate::task;

/// Memory for small batches that wait for the consumer, beside one batch of any size, in bytes. Each
/// time that the run and the consumer wait for each other takes as long as making a small batch.
const WAITING_BYTES: u64 = 1 << 20;

impl JobRun {
    /// Starts the run. The run works in the background until the run ends or the stream is dropped.
    pub fn start(self) -> BatchStream {
        let run = Arc::new(self);
        let (sender, batches) = channel(1, &ChannelRoom::new(WAITING_BYTES));
        let stats = Arc::new(Mutex::new(RunStats::default()));
        let driver = Driver {
            run: Arc::clone(&run),
            sender,
            stats: Arc::clone(&stats),
            take_reached: TakeReached::default(),
        };
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
    batches: Receiver<Result<Batch>>,
    stats: Arc<Mutex<RunStats>>,
    /// The task that drives the run; `None` after the end of the task was observed.
    task: Option<JoinHandle<()>>,
}

impl BatchStream {
    /// Returns the run.
    pub fn run(&self) -> &JobRun {
        &self.run
    }

    /// Returns the next batch, or `None` at the end. An error ends the run.
    pub async fn next(&mut self) -> Option<Result<Batch>> {
        if let Some(batch) = self.batches.next().await {
            return Some(batch);
        }
        // The channel also closes if the run panics.
        let ended = self.task.as_mut()?.await;
        self.task = None;
        let why = ended.err()?;
        Some(Err(Error::Engine(task::lost("the run", why))))
    }

    /// Returns the number of rows read from the cache and the number of rows computed so far, both
    /// at the cache point; `None` without a cache.
    pub fn cached(&self) -> Option<(u64, u64)> {
        let rows = self.run.cache_use()?;
        Some((rows.read, rows.computed))
    }

    /// Returns statistics of the batches sent so far and of failed rows.
    pub fn stats(&self) -> RunStats {
        self.stats.lock().map(|s| s.clone()).unwrap_or_default()
    }

    /// Stops the run, and returns when none of the run's tasks is running any more. Dropping the
    /// stream also stops the run, but segments in progress then finish in the background.
    pub async fn stop(mut self) {
        let pool = self.run.job.env().pool.clone();
        if let Some(task) = self.task.take() {
            task.abort();
            // The task was aborted or had already ended. Neither is an error here.
            let _ = task.await;
        }
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

/// Drives a run: passes its rows from the segments through the tail to the consumer.
struct Driver {
    run: Arc<JobRun>,
    sender: Sender<Result<Batch>>,
    stats: Arc<Mutex<RunStats>>,
    take_reached: TakeReached,
}

impl Driver {
    /// Drives the run to its end. If the run fails, the error is sent after the batches.
    async fn drive(self) {
        let driven = self.deliver().await;
        self.run.publish().await;
        if let Err(error) = driven {
            // Sending fails if the consumer hung up.
            self.sender.send(Err(error), 0).await;
        }
    }

    async fn deliver(&self) -> Result<()> {
        let mut output = Output::new(&self.run)?;
        let mut computed = self.computed();
        loop {
            // Rows are accepted only when the channel has room for their batch. Therefore, no batch
            // waits outside the channel, and memory is bounded and the same in every epoch.
            if !self.sender.ready().await {
                return Ok(());
            }
            let item = computed.next().await;
            let ends_run = item.is_none();
            let ends_epoch = matches!(item, None | Some(WorkItem::Begin(_)));
            let mut batches = Vec::new();
            let accepted = output.accept(item, &mut batches).await;
            let failed = accepted.is_err();
            output.write_letters(&batches, failed, ends_epoch).await?;
            if let Some(epoch) = output.finished_epoch() {
                self.take_reached.mark(epoch);
            }
            if let Ok(mut stats) = self.stats.lock() {
                stats.clone_from(output.tail.stats());
            }
            let is_over = self.send(&mut output, batches).await;
            if is_over {
                return Ok(());
            }
            accepted?;
            if ends_run {
                return Ok(());
            }
        }
    }

    /// Returns the run's work items with computed rows, in stream order. Segments are read before
    /// the pool is ready to compute them, so that the pool does not wait for files when several
    /// segments finish at the same time.
    fn computed(&self) -> BoxStream<'static, Computed> {
        if let Some(engine) = &self.run.engine {
            let reached = self.take_reached.clone();
            return computed_by(engine.as_ref(), &self.run.job, self.work(), reached);
        }
        let in_flight = self.run.in_flight;
        let (job, reached) = (Arc::clone(&self.run.job), self.take_reached.clone());
        let read = move |item: WorkItem<OrderedSegment>| {
            let job = Arc::clone(&job);
            item.then(reached.clone(), async move |segment| {
                segment.request().read(&job.segments).await
            })
        };
        let read = ahead(self.work(), in_flight, read, WorkItem::lost);
        let (job, reached) = (Arc::clone(&self.run.job), self.take_reached.clone());
        let compute = move |item: WorkItem<ReadSegment>| {
            let job = Arc::clone(&job);
            item.then(reached.clone(), async move |segment| {
                segment.compute(&job.segments).await
            })
        };
        ahead(read, in_flight, compute, WorkItem::lost).boxed()
    }

    /// Returns the run's work items with planned rows, in stream order.
    fn work(&self) -> BoxStream<'static, WorkItem<OrderedSegment>> {
        if let Some(rows) = &self.run.replayed {
            let epoch = self.run.first_epoch;
            return match self.run.replay(rows) {
                Ok(items) => stream::iter(items).boxed(),
                Err(error) => stream::iter([WorkItem::failed(epoch, error)]).boxed(),
            };
        }
        let sequencer = Sequencer::new(Arc::clone(&self.run), self.take_reached.clone());
        stream::unfold(sequencer, |mut sequencer| async move {
            let item = sequencer.next().await?;
            Some((item, sequencer))
        })
        .boxed()
    }

    /// Sends the batches that this run yields, up to the run's batch limit. Returns true if the run
    /// needs no more batches.
    async fn send(&self, output: &mut Output, batches: Vec<Batch>) -> bool {
        for batch in batches {
            if output.is_over(output.seen) {
                return true;
            }
            let mine = output.is_mine(output.seen);
            if mine {
                let bytes = batch_bytes(&batch.batch);
                if !self.sender.send(Ok(batch), bytes).await {
                    return true;
                }
            }
            output.seen += 1;
        }
        output.is_over(output.seen)
    }
}
