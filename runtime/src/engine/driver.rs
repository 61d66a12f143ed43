//! The driver of a run: segments side by side, their rows in order into the tail.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use tokio::sync::mpsc;

use super::Opened;
use super::arm::Reading;
use super::span::ENDLESS;
use super::work::{Orders, Satisfied, Step, compute, read, work};
use crate::error::{Error, Result};
use crate::tail::{Batch, RunStats};
use crate::task::begun_ahead;

/// Moves a run's rows from its segments through the tail to its consumer.
pub(super) struct Driver {
    pub(super) opened: Arc<Opened>,
    pub(super) sender: mpsc::Sender<Result<Batch>>,
    pub(super) stats: Arc<Mutex<RunStats>>,
}

impl Driver {
    pub(super) async fn run(self) {
        let driven = self.drive().await;
        if let Some(cached) = &self.opened.job.reader.cached {
            cached.finish().await;
        }
        if let Err(error) = driven {
            // Nobody listens any more where the receiver is gone.
            let _ = self.sender.send(Err(error)).await;
        }
    }

    async fn drive(&self) -> Result<()> {
        let opened = &self.opened;
        let continuous = opened.clauses.repeat.continuous;
        let counts = opened.reading() == Reading::Counted;
        let mut tail = opened.tail()?;
        let mut letters = opened.letter_writer();
        // Batches that were given, or passed over in favour of runs that take turns with this one.
        let mut seen = 0;
        let passes_over = opened.computes_others();
        let step_of = |nth| match passes_over {
            true => nth,
            false => opened.turns.step(nth),
        };
        let is_over = |nth| { opened.limit_batches }.is_some_and(|limit| step_of(nth) >= limit);
        let mut epoch_began: Option<u64> = None;
        // Reading runs ahead by itself, so that two segments that end at once do not leave the pool
        // waiting for the files of the next.
        let (at, satisfied) = (Arc::clone(opened), Satisfied::default());
        let works = work(Arc::clone(opened), satisfied.clone());
        let hint = satisfied.clone();
        let read = move |step: Step<_>| {
            let at = Arc::clone(&at);
            step.then(hint.clone(), move |work| read(at, work))
        };
        let read = begun_ahead(works, opened.env.in_flight, read, Step::lost);
        let (at, hint) = (Arc::clone(opened), satisfied.clone());
        let compute = move |step: Step<_>| {
            let at = Arc::clone(&at);
            step.then(hint.clone(), move |ready| compute(at, ready))
        };
        let done = begun_ahead(read, opened.env.in_flight, compute, Step::lost);
        let mut done = std::pin::pin!(done);
        loop {
            // Rows are taken in hand when there is room for their batch, so that none waits between
            // the segments and the channel: memory is bounded, and the same in every epoch.
            if self.sender.reserve().await.is_err() {
                return Ok(());
            }
            let mut out = Vec::new();
            let step = done.next().await;
            let ended = step.is_none();
            let is_epoch = matches!(step, Some(Step::Begin(_)));
            let is_satisfied = counts && tail.is_satisfied();
            let stepped = match step {
                None if counts => tail.finish(&mut out).and_then(|()| tail.trial.end()),
                None => tail.trial.end(),
                Some(Step::Skipped) => Ok(()),
                // Whether what comes after the last row of TAKE was begun is a matter of timing.
                Some(Step::Failed { epoch, .. }) if is_satisfied && epoch_began == Some(epoch) => {
                    Ok(())
                }
                Some(Step::Failed { error, .. }) => Err(error.into()),
                Some(Step::Begin(epoch)) => {
                    let first = epoch_began.is_none();
                    if let Some(cached) = &opened.job.reader.cached {
                        cached.begin_epoch(epoch).await;
                    }
                    let finished = match first || continuous || !counts {
                        false => tail.finish(&mut out),
                        true => Ok(()),
                    };
                    let finished = finished.and_then(|()| match first || continuous {
                        false => tail.trial.end(),
                        true => Ok(()),
                    });
                    // The sequencer knows it of rows that are planned.
                    let idle = counts
                        && !first
                        && opened.epochs.is_none()
                        && opened.resume.is_none()
                        && tail.stats().batches == 0
                        && tail.is_idle(continuous);
                    tail.begin(epoch, continuous);
                    epoch_began = Some(epoch);
                    match idle {
                        true => finished.and(Err(Error::Config(ENDLESS.to_owned()))),
                        false => finished,
                    }
                }
                Some(Step::Rows { of, orders, .. }) => match orders {
                    Orders::Planned(batches) => tail.planned(of, batches, &mut out),
                    Orders::Counted { origin, flush } => tail.counted(of, &origin, flush, &mut out),
                    Orders::Restored(groups) => {
                        let at = opened.resume.clone().unwrap_or_default();
                        tail.restored(of, groups, &at, &mut out)
                    }
                },
            };
            let last = { 0.. }.zip(&out).any(|(nth, _)| is_over(seen + nth + 1));
            // Where nobody writes them, they are not gathered either.
            let mut told = tail.take_letters();
            if let Some(writer) = &mut letters {
                // Rows of batches that are another one's are told by it.
                let mine = |nth: u64| opened.turns.has(step_of(nth)) && !is_over(nth);
                let given = { seen.. }.zip(&out).filter(|(nth, _)| mine(*nth));
                let given: BTreeSet<_> = given.map(|(_, b)| (b.epoch, b.step)).collect();
                let all: BTreeSet<_> = out.iter().map(|b| (b.epoch, b.step)).collect();
                // That which ends the run is of a batch that does not come.
                let failed = stepped.is_err() && !last;
                told.retain(|letter| {
                    let of = (letter.epoch, letter.step);
                    given.contains(&of) || failed && !all.contains(&of)
                });
                writer.add(told).await?;
                if ended || failed || is_epoch || last {
                    writer.flush().await?;
                }
            }
            if counts
                && tail.is_satisfied()
                && let Some(epoch) = epoch_began
            {
                satisfied.mark(epoch);
            }
            if let Ok(mut stats) = self.stats.lock() {
                stats.clone_from(tail.stats());
            }
            for batch in out {
                if is_over(seen) {
                    return Ok(());
                }
                let mine = opened.turns.has(step_of(seen));
                if mine && self.sender.send(Ok(batch)).await.is_err() {
                    return Ok(());
                }
                seen += 1;
            }
            // What fails behind the last batch that is wanted is nobody's.
            if is_over(seen) {
                return Ok(());
            }
            stepped?;
            if ended {
                return Ok(());
            }
        }
    }
}
