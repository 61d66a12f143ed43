//! The driver of a run: segments side by side, their rows in order into the tail.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;

use super::Opened;
use super::work::{Done, compute, read, work};
use crate::error::{Error, Result};
use crate::tail::{Batch, Feed, RunStats};

/// Moves a run's rows from its segments through the tail to its consumer.
pub(super) struct Driver {
    pub(super) opened: Arc<Opened>,
    pub(super) sender: mpsc::Sender<Result<Batch>>,
    pub(super) stats: Arc<Mutex<RunStats>>,
    /// One more than the last epoch whose TAKE is satisfied.
    pub(super) satisfied: Arc<AtomicU64>,
}

impl Driver {
    pub(super) async fn run(self) {
        if let Err(error) = self.drive().await {
            // Nobody listens any more where the receiver is gone.
            let _ = self.sender.send(Err(error)).await;
        }
    }

    async fn drive(&self) -> Result<()> {
        let opened = &self.opened;
        let continuous = opened.clauses.repeat.continuous;
        let mut tail = opened.tail();
        let mut sent = 0;
        let mut epoch_began: Option<u64> = None;
        let (reading, computing) = (Arc::clone(opened), Arc::clone(opened));
        // Reading runs ahead by itself, so that two segments that end at once do not leave the pool
        // waiting for the files of the next. Errors keep their place: one that reading met must not
        // overtake the rows before it.
        let mut done = work(Arc::clone(opened), Arc::clone(&self.satisfied))
            .map(move |work| read(Arc::clone(&reading), work))
            .buffered(opened.env.in_flight)
            .map(move |ready| compute(Arc::clone(&computing), ready))
            .buffered(opened.env.in_flight);
        loop {
            // Rows are taken in hand when there is room for their batch, so that none waits between
            // the segments and the channel: memory is bounded, and the same in every epoch.
            if self.sender.reserve().await.is_err() {
                return Ok(());
            }
            let mut out = Vec::new();
            let item = done.try_next().await;
            let ended = matches!(item, Ok(None));
            let stepped = match item {
                Err(error) => Err(Error::Engine(error)),
                Ok(None) => tail.finish(&mut out),
                Ok(Some(Done::Begin(epoch))) => {
                    let first = epoch_began.is_none();
                    let finished = match (first, continuous) {
                        (false, false) => tail.finish(&mut out),
                        _ => Ok(()),
                    };
                    if first || !continuous {
                        tail.begin(epoch, opened.feed());
                    } else {
                        tail.enter_epoch(epoch);
                        if let Feed::Counted { skip, take } = opened.counted()
                            && opened.span_rows().is_none()
                        {
                            tail.restart_counting(skip, take);
                        }
                    }
                    if !first && opened.epochs.is_none() && tail.stats().rows == 0 && out.is_empty()
                    {
                        return Err(Error::Config(
                            "an epoch has no rows, so REPEAT without end would never yield one"
                                .to_owned(),
                        ));
                    }
                    epoch_began = Some(epoch);
                    finished
                }
                Ok(Some(Done::Rows(rows))) => tail.push(rows, &mut out),
            };
            if tail.is_satisfied()
                && let Some(epoch) = epoch_began
            {
                self.satisfied.store(epoch + 1, Ordering::Relaxed);
            }
            if let Ok(mut stats) = self.stats.lock() {
                stats.clone_from(tail.stats());
            }
            for batch in out {
                if opened.limit_batches.is_some_and(|limit| sent >= limit)
                    || self.sender.send(Ok(batch)).await.is_err()
                {
                    return Ok(());
                }
                sent += 1;
            }
            stepped?;
            if ended || opened.limit_batches.is_some_and(|limit| sent >= limit) {
                return Ok(());
            }
        }
    }
}
