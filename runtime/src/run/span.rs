//! The end of an epoch, and the repeated batch of a run that resumes in the last step of a span.

use std::sync::Arc;

use datafusion::common::internal_datafusion_err;
use forebay_planner::clauses::BatchScope;

use super::config::RunScope;
use super::job_run::JobRun;
use super::row_count_source::CountingMode;
use super::sequencer::{Sequencer, Stage};
use super::work::{Delivery, TakeReached, WorkItem};
use crate::error::{Error, Result};
use crate::segment::SegmentRequest;
use crate::stream::accountant::{BatchRules, PlannedBatch};
use crate::stream::assignment::WorkerStride;

/// Returns the error for an endless pipeline that never yields a batch.
pub(super) fn endless() -> Error {
    Error::Config(
        "an epoch has no rows for a batch, so REPEAT without end would never yield one".to_owned(),
    )
}

impl Sequencer {
    /// Ends an epoch. Ends the span of batches, too, unless batches cross epochs.
    pub(super) async fn end_of_epoch(&mut self) -> Result<()> {
        self.ended = true;
        self.accountant.end_epoch();
        let is_planned = matches!(self.reading, CountingMode::Planned(_));
        let continuous = self.run.job.clauses.repeat.continuous;
        let last = self.run.end_epoch();
        let is_last = last.is_some_and(|last| self.epoch + 1 >= last);
        if is_planned && (!continuous || is_last) {
            self.end_of_span().await?;
        }
        if self.stage == Stage::Done {
            return Ok(());
        }
        let epoch = self.epoch;
        self.cut(epoch);
        // The horizon was reached, but the last window may have had no rows.
        if !is_planned && self.inputs.take_horizon() {
            self.out.push_back(WorkItem::Rows {
                epoch,
                work: self.building.take(),
                delivery: Delivery::Counted {
                    origin: Arc::new(self.origin()),
                    flush: true,
                },
            });
        }
        // If the first epoch yields no batch (or, if batches cross epochs, no row), an endless run
        // may never yield one.
        if is_planned
            && self.run.epochs.is_none()
            && self.run.resume.is_none()
            && self.accountant.steps() == 0
            && self.accountant.is_idle()
        {
            return Err(endless());
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

    /// In the first step of a resumed run, repeats the batch that this rank had in the step before
    /// it.
    pub(super) async fn place_resumed(&mut self, repeated: PlannedBatch) -> Result<()> {
        let ranks = self.run.rules.ranks;
        let step = ranks.batches_per_step();
        let mut number = self.accountant.base() + ranks.rank % step;
        let mut steps = Vec::new();
        while steps.is_empty() {
            let Some(before) = number.checked_sub(step) else {
                self.completed.push(repeated);
                return Ok(());
            };
            number = before;
            let alone = Self::alone(
                &self.run,
                self.reached.clone(),
                (repeated.cursor.epoch, number),
            );
            steps = Box::pin(alone).await?;
            // The batch found may itself be a repetition of an earlier batch.
            if matches!(steps.last(), Some(WorkItem::Rows { delivery: Delivery::Planned(batches), .. })
                if batches.iter().any(|batch| batch.repeats))
            {
                steps.clear();
            }
        }
        let Some(WorkItem::Rows {
            delivery: Delivery::Planned(batches),
            ..
        }) = steps.last_mut()
        else {
            return Err(internal_datafusion_err!(
                "the batch before a repetition cannot be planned"
            )
            .into());
        };
        for batch in batches {
            *batch = PlannedBatch {
                rows: batch.rows,
                packs: batch.packs.take(),
                epoch: repeated.epoch,
                step: repeated.step,
                repeats: true,
                is_borrowed: false,
                units: repeated.units,
                cursor: Arc::clone(&repeated.cursor),
            };
        }
        self.out.extend(steps);
        Ok(())
    }

    /// Plans a single batch of the span, or this rank's share of it.
    async fn alone(
        run: &JobRun,
        reached: TakeReached,
        (epoch, number): (u64, u64),
    ) -> Result<Vec<WorkItem<SegmentRequest>>> {
        let mut alone = run.clone();
        if !run.job.clauses.repeat.continuous {
            alone.first_epoch = epoch;
        }
        let mut ranks = alone.rules.ranks;
        if ranks.batch.scope == BatchScope::PerRank {
            (ranks.rank, ranks.world) = (0, 1);
        }
        alone.rules = BatchRules::new(&run.job.clauses, ranks, WorkerStride::ALL);
        (alone.resume, alone.stride) = (None, WorkerStride::ALL);
        alone.scope = RunScope::Step {
            epoch,
            step: number,
        };
        let mut sequencer = Self::new(Arc::new(alone), reached);
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
