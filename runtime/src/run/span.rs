//! The end of an epoch, and the repeated batch of a run that resumes in the last step of a span.

use std::sync::Arc;

use datafusion::common::internal_err;
use forebay_planner::clauses::BatchScope;

use super::config::RunScope;
use super::job_run::JobRun;
use super::sequencer::{Sequencer, Stage};
use super::work::{Delivery, TakeReached, WorkItem};
use crate::error::Result;
use crate::segment::OrderedSegment;
use crate::stream::accountant::{BatchRules, PlannedBatch};
use crate::stream::assignment::WorkerStride;

impl Sequencer {
    /// Ends the current epoch. Also ends the span, unless batches cross the end of this epoch.
    pub(super) async fn end_of_epoch(&mut self) -> Result<()> {
        self.accountant.ended = true;
        let is_planned = !self.run.is_counted();
        let continuous = self.run.job.clauses.repeat.continuous;
        let last = self.run.end_epoch();
        let is_last = last.is_some_and(|last| self.epoch + 1 >= last);
        if is_planned && (!continuous || is_last) {
            self.accountant.finish_span(&self.inputs)?;
            self.place_all().await?;
        }
        if self.stage == Stage::Done {
            return Ok(());
        }
        self.cut();
        // If the horizon was reached and no rows followed, no item of work has reported the horizon
        // yet.
        if !is_planned && self.inputs.take_horizon() {
            let origin = self.origin();
            self.emit(Delivery::Counted {
                origin,
                flush: true,
            });
        }
        if is_planned {
            let is_idle = self.accountant.steps == 0 && self.accountant.is_idle();
            self.run.check_endless(is_idle)?;
        }
        self.next_epoch();
        Ok(())
    }

    pub(super) fn next_epoch(&mut self) {
        self.epoch += 1;
        self.stage = Stage::Begin;
        if !self.run.job.clauses.repeat.continuous {
            self.resumed_step = None;
        }
    }

    /// Plans `repeated`, a batch in the first step of a resumed run that repeats this rank's
    /// previous batch. The rows of the previous batch are planned again, because this run has not
    /// computed them.
    pub(super) async fn place_resumed(&mut self, repeated: PlannedBatch) -> Result<()> {
        let ranks = self.run.rules.ranks;
        let step = ranks.batches_per_step();
        let mut number = self.accountant.base + ranks.rank % step;
        loop {
            let Some(before) = number.checked_sub(step) else {
                self.completed.push(repeated);
                return Ok(());
            };
            number = before;
            let mut steps = Box::pin(Self::alone(&self.run, repeated.cursor.epoch, number)).await?;
            let Some(last) = steps.last_mut() else {
                continue;
            };
            let WorkItem::Rows {
                delivery: Delivery::Planned(batches),
                ..
            } = last
            else {
                return Ok(internal_err!(
                    "the batch before a repetition cannot be planned"
                )?);
            };
            // If the batch of this step is itself a repetition, the batch of an earlier step is
            // planned instead.
            if batches.iter().any(|batch| batch.repeats) {
                continue;
            }
            for batch in batches {
                *batch = PlannedBatch {
                    rows: batch.rows,
                    packs: batch.packs.take(),
                    is_borrowed: false,
                    ..repeated.clone()
                };
            }
            self.out.extend(steps);
            return Ok(());
        }
    }

    /// Plans batch number `step` of the span or, under `GLOBAL`, this rank's share of that batch.
    /// Batches are numbered over all ranks.
    async fn alone(run: &JobRun, epoch: u64, step: u64) -> Result<Vec<WorkItem<OrderedSegment>>> {
        let mut alone = run.clone();
        if !run.job.clauses.repeat.continuous {
            alone.first_epoch = epoch;
        }
        let mut ranks = alone.rules.ranks;
        if ranks.batch.scope == BatchScope::PerRank {
            (ranks.rank, ranks.world) = (0, 1);
        }
        alone.rules = BatchRules::new(&run.job.clauses, ranks);
        (alone.resume, alone.stride) = (None, WorkerStride::ALL);
        alone.scope = RunScope::Step { epoch, step };
        let mut sequencer = Self::new(Arc::new(alone), TakeReached::default());
        let mut steps = Vec::new();
        while let Some(step) = sequencer.next().await {
            match step {
                WorkItem::Rows { .. } => steps.push(step),
                WorkItem::Failed { error, .. } => return Err(error),
                WorkItem::Begin(_) | WorkItem::Skipped => {}
            }
        }
        Ok(steps)
    }
}
