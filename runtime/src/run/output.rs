//! The output of a run: the tail, and the dead letters of the batches that the run yields.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::job_run::JobRun;
use super::work::{Delivery, WorkItem};
use crate::dead_letters::DeadLetterWriter;
use crate::error::Result;
use crate::fragment::row_batch::RowBatch;
use crate::tail::{Batch, Tail};

/// Computed rows, as an item of work in stream order.
pub(super) type Computed = WorkItem<Vec<RowBatch>>;

/// The tail of a run, and the dead letters of the batches that the run yields.
pub(super) struct Output {
    run: Arc<JobRun>,
    pub(super) tail: Tail,
    letters: Option<DeadLetterWriter>,
    /// Number of batches that passed through this output so far: batches that were sent, and
    /// batches that were left to other workers.
    pub(super) seen: u64,
    epoch: Option<u64>,
}

impl Output {
    pub(super) fn new(run: &Arc<JobRun>) -> Result<Self> {
        Ok(Self {
            tail: run.tail()?,
            letters: run.letter_writer(),
            seen: 0,
            epoch: None,
            run: Arc::clone(run),
        })
    }

    /// Returns the rank's step of the `nth` batch that passes through this output.
    fn step_of(&self, nth: u64) -> u64 {
        if self.run.computes_others() {
            nth
        } else {
            self.run.stride.step(nth)
        }
    }

    /// Returns true if the run yields the `nth` batch that passes through this output.
    pub(super) fn is_mine(&self, nth: u64) -> bool {
        self.run.stride.has(self.step_of(nth))
    }

    /// Returns true if the run's batch limit ends the run before the `nth` batch that passes
    /// through this output.
    pub(super) fn is_over(&self, nth: u64) -> bool {
        let limit = self.run.limit_batches;
        limit.is_some_and(|limit| self.step_of(nth) >= limit)
    }

    /// Returns the current epoch if rows are counted as they are computed and the epoch has all
    /// rows of its TAKE; otherwise `None`.
    pub(super) fn finished_epoch(&self) -> Option<u64> {
        let has_all = self.run.is_counted() && self.tail.take_reached();
        self.epoch.filter(|_| has_all)
    }

    /// Passes an item of work to the tail, and appends completed batches to `out`. `item` is `None`
    /// at the end of the run.
    pub(super) async fn accept(
        &mut self,
        item: Option<Computed>,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        match item {
            None => self.end_of_span(out),
            Some(WorkItem::Skipped) => Ok(()),
            // The number of rows that are computed after the last row of TAKE depends on timing, so
            // errors in these rows are dropped.
            Some(WorkItem::Failed { epoch, .. }) if self.finished_epoch() == Some(epoch) => Ok(()),
            Some(WorkItem::Failed { error, .. }) => Err(error),
            Some(WorkItem::Begin(epoch)) => self.begin(epoch, out).await,
            Some(WorkItem::Rows { work, delivery, .. }) => match delivery {
                Delivery::Planned(batches) => self.tail.planned(work, batches, out),
                Delivery::Counted { origin, flush } => self.tail.counted(work, origin, flush, out),
                Delivery::Restored(groups) => {
                    let at = self.run.first_cursor().position();
                    self.tail.restored(work, groups, at, out)
                }
            },
        }
    }

    async fn begin(&mut self, epoch: u64, out: &mut Vec<Batch>) -> Result<()> {
        self.run.begin_epoch(epoch).await;
        if self.epoch.is_some() {
            if !self.run.job.clauses.repeat.continuous {
                self.end_of_span(out)?;
            }
            // If rows are planned, the sequencer makes this check. If rows are counted as they are
            // computed, only the tail knows the number of batches.
            if self.run.is_counted() {
                let is_idle = self.tail.stats().batches == 0 && self.tail.is_idle();
                self.run.check_endless(is_idle)?;
            }
        }
        self.tail.begin(epoch);
        self.epoch = Some(epoch);
        Ok(())
    }

    /// Ends the span: if rows are counted as they are computed, the tail completes the last
    /// batches.
    fn end_of_span(&mut self, out: &mut Vec<Batch>) -> Result<()> {
        if self.run.is_counted() {
            self.tail.finish(out)?;
        }
        self.tail.trial.end()
    }

    /// Writes the failed rows of the batches that the run yields. `failed` is true if the run ends
    /// with an error. `ends_epoch` is true if no more batches of the epoch follow.
    pub(super) async fn write_letters(
        &mut self,
        batches: &[Batch],
        failed: bool,
        ends_epoch: bool,
    ) -> Result<()> {
        let mut letters = self.tail.take_letters();
        let seen = self.seen + batches.len() as u64;
        let is_last = !batches.is_empty() && self.is_over(seen);
        // The run that yields a batch reports the failed rows of that batch.
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
        if ends_epoch || failed || is_last {
            writer.flush().await?;
        }
        Ok(())
    }
}
