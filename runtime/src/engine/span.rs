//! The end of an epoch, and of a span of batches: an epoch, or the whole run where batches cross epochs.

use std::sync::Arc;

use datafusion::common::{Result, exec_datafusion_err, internal_datafusion_err};
use forebay_planner::clauses::{BatchScope, EqualSteps};

use super::arm::Reading;
use super::sequencer::{Sequencer, Stage};
use super::work::{Orders, Satisfied, Step, Work};
use super::{Only, Opened};
use crate::deal::Turns;
use crate::tail::PlannedBatch;

/// Why a pipeline that repeats without end is refused.
pub(super) const ENDLESS: &str =
    "an epoch has no rows for a batch, so REPEAT without end would never yield one";

impl Sequencer {
    /// Ends an epoch, and perhaps the span of batches that it belongs to.
    pub(super) async fn end_of_epoch(&mut self) -> Result<()> {
        self.ended = true;
        let continuous = self.opened.clauses.repeat.continuous;
        let last = self
            .opened
            .last_epoch()
            .is_some_and(|last| self.epoch + 1 >= last);
        if matches!(self.reading, Reading::Planned(_)) && (!continuous || last) {
            self.end_of_span().await?;
        }
        if self.stage == Stage::Done {
            return Ok(());
        }
        let epoch = self.epoch;
        self.cut(epoch);
        // A window without rows may have been the last.
        if self.reading == Reading::Counted && std::mem::take(&mut self.flush) {
            self.out.push_back(Step::Rows {
                epoch,
                of: self.building.take(),
                orders: Orders::Counted {
                    origin: Arc::new(self.origin()),
                    flush: true,
                },
            });
        }
        // A first epoch without a batch, or without a row where batches cross epochs, may come again and again.
        let skip = self.opened.clauses.skip;
        let is_idle = match continuous {
            true => self.rows <= skip,
            false => self.step == 0,
        };
        if self.opened.epochs.is_none()
            && is_idle
            && self.steps == 0
            && self.opened.resume.is_none()
            && matches!(self.reading, Reading::Planned(_))
        {
            return Err(exec_datafusion_err!("{}", ENDLESS));
        }
        self.next_epoch();
        Ok(())
    }

    pub(super) fn next_epoch(&mut self) {
        self.epoch += 1;
        self.stage = Stage::Begin;
        if !self.opened.clauses.repeat.continuous {
            (self.batches, self.base, self.step) = (0, 0, 0);
            self.resumed_step = None;
        }
    }

    async fn end_of_span(&mut self) -> Result<()> {
        let mut closed = Vec::new();
        self.grouper.finish(&mut closed);
        self.close_all(&mut closed).await?;
        let deal = self.opened.deal;
        let left = (self.batches - self.base) % deal.batches_per_step();
        // Some ranks have no batch in the last step.
        if left > 0 {
            match deal.equal_steps {
                EqualSteps::Drop => self.mine = None,
                EqualSteps::Count | EqualSteps::Pad => {
                    self.short = Some(left);
                    self.end_of_step(&[])?;
                    self.short = None;
                }
            }
        }
        self.repeat_resumed().await
    }

    /// Plans the batch that this rank had before the run went on, where it comes again in the first step.
    pub(super) async fn repeat_resumed(&mut self) -> Result<()> {
        let is_first = self.resumed_step.is_some_and(|at| at + 1 == self.step);
        if !is_first || self.dry.is_some() {
            return Ok(());
        }
        let Some(again) = self.building.planned.pop_if(|batch| batch.repeats) else {
            return Ok(());
        };
        let epoch = self.epoch;
        self.cut(epoch);
        let deal = self.opened.deal;
        let (step, rank) = (deal.batches_per_step(), deal.rank % deal.batches_per_step());
        let (mut number, mut steps) = (self.base + rank, Vec::new());
        while steps.is_empty() {
            let Some(before) = number.checked_sub(step) else {
                self.building.planned.push(again);
                return Ok(());
            };
            number = before;
            let alone = Self::alone(&self.opened, self.satisfied.clone(), (epoch, number));
            steps = Box::pin(alone).await?;
            // That one may have been a batch that came again.
            if matches!(steps.last(), Some(Step::Rows { orders: Orders::Planned(batches), .. })
                if batches.iter().any(|batch| batch.repeats))
            {
                steps.clear();
            }
        }
        let Some(Step::Rows {
            orders: Orders::Planned(batches),
            ..
        }) = steps.last_mut()
        else {
            return Err(internal_datafusion_err!(
                "a batch that was given cannot be planned"
            ));
        };
        for batch in batches {
            let (rows, packs) = (batch.rows, batch.packs.take());
            *batch = PlannedBatch {
                rows,
                packs,
                epoch: again.epoch,
                step: again.step,
                repeats: true,
                is_borrowed: false,
                units: again.units,
                cursor: Arc::clone(&again.cursor),
            };
        }
        self.out.extend(steps);
        Ok(())
    }

    /// The work of one batch of the span by itself, or of this rank's part of it.
    async fn alone(
        opened: &Opened,
        satisfied: Satisfied,
        (epoch, number): (u64, u64),
    ) -> Result<Vec<Step<Work>>> {
        let mut opened = opened.clone();
        if !opened.clauses.repeat.continuous {
            opened.first_epoch = epoch;
        }
        if opened.deal.batch.scope == BatchScope::PerRank {
            (opened.deal.rank, opened.deal.world) = (0, 1);
        }
        (opened.resume, opened.turns) = (None, Turns { first: 0, of: 1 });
        opened.only = Only::Step {
            epoch,
            step: number,
        };
        let mut sequencer = Self::new(Arc::new(opened), satisfied);
        let mut steps = Vec::new();
        while let Some(step) = sequencer.next().await {
            match step {
                Step::Rows { .. } => steps.push(step),
                Step::Failed { error, .. } => return Err(error),
                Step::Begin(_) | Step::Skipped => {}
            }
        }
        Ok(steps)
    }
}
