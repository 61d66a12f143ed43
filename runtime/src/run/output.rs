//! The output of a run: the tail, and the dead letters of the batches that the run yields.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::job_run::JobRun;
use super::row_count_source::CountingMode;
use super::span::endless;
use super::work::{Delivery, WorkItem};
use crate::dead_letters::DeadLetterWriter;
use crate::error::Result;
use crate::fragment::row_batch::RowBatch;
use crate::stream::cursor::Cursor;
use crate::tail::{Batch, Tail};

/// Computed rows, as an item of work in stream order.
pub(super) type Computed = WorkItem<Vec<RowBatch>>;

/// Flags that say what ends with an item of work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) run: bool,
    pub(super) epoch: bool,
}

/// The tail of a run, and the dead letters of the batches that the run yields.
pub(super) struct Output {
    run: Arc<JobRun>,
    pub(super) tail: Tail,
    letters: Option<DeadLetterWriter>,
    /// True if rows are counted as they are computed.
    counts: bool,
    /// Number of batches that were sent, or were left to other workers.
    pub(super) seen: u64,
    /// True if batches of other workers pass through this output, too.
    passes_over: bool,
    epoch: Option<u64>,
}

impl Output {
    pub(super) fn new(run: &Arc<JobRun>) -> Result<Self> {
        Ok(Self {
            tail: run.tail()?,
            letters: run.letter_writer(),
            counts: run.counting_mode() == CountingMode::Counted,
            seen: 0,
            passes_over: run.computes_others(),
            epoch: None,
            run: Arc::clone(run),
        })
    }

    /// Returns the rank's step of the `nth` batch that passes through this output.
    fn step_of(&self, nth: u64) -> u64 {
        if self.passes_over {
            nth
        } else {
            self.run.stride.step(nth)
        }
    }

    /// Returns true if the run yields the `nth` batch that passes through this output.
    pub(super) fn is_mine(&self, nth: u64) -> bool {
        self.run.stride.has(self.step_of(nth))
    }

    /// Returns true if the run's batch limit ends it before the `nth` batch that passes through
    /// this output.
    pub(super) fn is_over(&self, nth: u64) -> bool {
        { self.run.limit_batches }.is_some_and(|limit| self.step_of(nth) >= limit)
    }

    /// Returns the current epoch if it has all rows of its TAKE.
    pub(super) fn finished_epoch(&self) -> Option<u64> {
        self.epoch
            .filter(|_| self.counts && self.tail.take_reached())
    }

    /// Passes an item of work to the tail; `None` is the end of the run.
    pub(super) async fn accept(
        &mut self,
        item: Option<Computed>,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        match item {
            None => {
                if self.counts {
                    self.tail.finish(out)?;
                }
                self.tail.trial.end()
            }
            Some(WorkItem::Skipped) => Ok(()),
            // The number of rows that are computed after the last row of TAKE depends on timing, so
            // their errors are dropped.
            Some(WorkItem::Failed { epoch, .. }) if self.finished_epoch() == Some(epoch) => Ok(()),
            Some(WorkItem::Failed { error, .. }) => Err(error),
            Some(WorkItem::Begin(epoch)) => self.begin(epoch, out).await,
            Some(WorkItem::Rows { work, delivery, .. }) => match delivery {
                Delivery::Planned(batches) => self.tail.planned(work, batches, out),
                Delivery::Counted { origin, flush } => self.tail.counted(work, &origin, flush, out),
                Delivery::Restored(groups) => {
                    let at = self.run.resume.as_ref().map(Cursor::position);
                    self.tail
                        .restored(work, groups, at.unwrap_or_default(), out)
                }
            },
        }
    }

    async fn begin(&mut self, epoch: u64, out: &mut Vec<Batch>) -> Result<()> {
        if let Some(cached) = &self.run.job.plan.reader.cached {
            cached.begin_epoch(epoch).await;
        }
        let is_first = self.epoch.is_none();
        let mut finished = Ok(());
        if !is_first && !self.run.job.clauses.repeat.continuous {
            if self.counts {
                finished = self.tail.finish(out);
            }
            finished = finished.and_then(|()| self.tail.trial.end());
        }
        // The sequencer checks for an endless run if rows are planned; here, rows are counted.
        let is_endless = self.counts
            && !is_first
            && self.run.epochs.is_none()
            && self.run.resume.is_none()
            && self.tail.stats().batches == 0
            && self.tail.is_idle();
        self.tail.begin(epoch);
        self.epoch = Some(epoch);
        if is_endless {
            finished = finished.and_then(|()| Err(endless()));
        }
        finished
    }

    /// Writes the failed rows of the batches that the run yields. `failed` is true if the run ends with an error.
    pub(super) async fn write_letters(
        &mut self,
        batches: &[Batch],
        failed: bool,
        ends: Ends,
    ) -> Result<()> {
        let mut letters = self.tail.take_letters();
        let is_last = { self.seen.. }
            .zip(batches)
            .any(|(nth, _)| self.is_over(nth + 1));
        // Failed rows are reported by the run that yields their batch.
        let given = { self.seen.. }
            .zip(batches)
            .filter(|(nth, _)| self.is_mine(*nth) && !self.is_over(*nth));
        let given: BTreeSet<_> = given.map(|(_, b)| (b.epoch, b.step)).collect();
        let Some(writer) = &mut self.letters else {
            return Ok(());
        };
        let all: BTreeSet<_> = batches.iter().map(|b| (b.epoch, b.step)).collect();
        // The failed row that ends the run belongs to a batch that is not sent.
        let failed = failed && !is_last;
        letters.retain(|letter| {
            let step = (letter.epoch, letter.step);
            given.contains(&step) || failed && !all.contains(&step)
        });
        writer.add(letters).await?;
        if ends.run || ends.epoch || failed || is_last {
            writer.flush().await?;
        }
        Ok(())
    }
}
