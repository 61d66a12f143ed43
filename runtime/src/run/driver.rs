//! The driver of a run: takes computed segments in stream order, has the tail make batches of their
//! rows, and sends the batches.

use std::sync::{Arc, Mutex};

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;

use super::job_run::JobRun;
use super::output::{Computed, Ends, Output};
use super::sequencer::Sequencer;
use super::work::{TakeReached, WorkItem};
use crate::error::Result;
use crate::prefetch::ahead;
use crate::segment::{ReadSegment, SegmentRequest};
use crate::tail::{Batch, RunStats};

/// Drives a run: passes its rows from the segments through the tail to the consumer.
pub(super) struct Driver {
    run: Arc<JobRun>,
    sender: mpsc::Sender<Result<Batch>>,
    stats: Arc<Mutex<RunStats>>,
    take_reached: TakeReached,
}

/// The driver's next action after it sent batches.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Wait,
    End,
}

impl Driver {
    pub(super) fn new(
        run: Arc<JobRun>,
        sender: mpsc::Sender<Result<Batch>>,
        stats: Arc<Mutex<RunStats>>,
    ) -> Self {
        Self {
            run,
            sender,
            stats,
            take_reached: TakeReached::default(),
        }
    }

    /// Drives the run to its end. If the run fails, the error is sent after the batches.
    pub(super) async fn drive(self) {
        let driven = self.deliver().await;
        if let Some(cached) = &self.run.job.plan.reader.cached {
            cached.finish().await;
        }
        if let Err(error) = driven {
            // The receiver is gone if the consumer hung up.
            let _ = self.sender.send(Err(error)).await;
        }
    }

    async fn deliver(&self) -> Result<()> {
        let mut output = Output::new(&self.run)?;
        let mut computed = std::pin::pin!(self.computed());
        loop {
            // Rows are accepted only if the channel has room for their batch, so that no batch
            // waits in front of it: memory is bounded, and the same in every epoch.
            if self.sender.reserve().await.is_err() {
                return Ok(());
            }
            let item = computed.next().await;
            let ends = Ends {
                run: item.is_none(),
                epoch: matches!(item, Some(WorkItem::Begin(_))),
            };
            let mut batches = Vec::new();
            let accepted = output.accept(item, &mut batches).await;
            output
                .write_letters(&batches, accepted.is_err(), ends)
                .await?;
            if let Some(epoch) = output.finished_epoch() {
                self.take_reached.mark(epoch);
            }
            if let Ok(mut stats) = self.stats.lock() {
                stats.clone_from(output.tail.stats());
            }
            if self.send(&mut output, batches).await == Next::End {
                return Ok(());
            }
            accepted?;
            if ends.run {
                return Ok(());
            }
        }
    }

    /// Returns the run's segments, computed, in stream order. Segments are read ahead of being
    /// computed, so that the pool does not wait for files when several segments finish at the same
    /// time.
    fn computed(&self) -> impl Stream<Item = Computed> + use<> {
        let in_flight = self.run.in_flight;
        let (job, reached) = (Arc::clone(&self.run.job), self.take_reached.clone());
        let read = move |item: WorkItem<SegmentRequest>| {
            let job = Arc::clone(&job);
            item.then(reached.clone(), async move |request| {
                request.read(&job.segments).await
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
        ahead(read, in_flight, compute, WorkItem::lost)
    }

    /// Returns the run's segments, planned, in stream order.
    fn work(&self) -> BoxStream<'static, WorkItem<SegmentRequest>> {
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

    /// Sends the batches that this run yields, up to its batch limit.
    async fn send(&self, output: &mut Output, batches: Vec<Batch>) -> Next {
        for batch in batches {
            if output.is_over(output.seen) {
                return Next::End;
            }
            let mine = output.is_mine(output.seen);
            if mine && self.sender.send(Ok(batch)).await.is_err() {
                return Next::End;
            }
            output.seen += 1;
        }
        if output.is_over(output.seen) {
            Next::End
        } else {
            Next::Wait
        }
    }
}
