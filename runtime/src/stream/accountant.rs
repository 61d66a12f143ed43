//! The accountant of a stream: assigns each row to a batch, a rank and a step, and computes the cursor after each
//! batch.
//!
//! The accountant takes rows in stream order, and uses only the [`GroupKey`] of a row and the name
//! of the row in a cursor. A run that knows its rows before computing them passes planned rows to
//! the accountant. A run that learns from computing which rows exist passes computed rows. Both
//! kinds of run make the same batches and the same tokens.

use std::sync::Arc;

use forebay_planner::clauses::{Clauses, EqualSteps, Remainder};

use super::assignment::{RankAssignment, WorkerStride};
use super::cursor::{CarriedRow, Cursor, InputPosition};
use super::group::{Carry, Group, GroupKey, Grouper, Grouping};
use crate::error::Result;

/// A point in a stream, behind the row that was counted last. Cursors are made from it.
pub(crate) trait StreamPoint<R> {
    /// Returns the positions of the inputs.
    fn inputs(&self) -> InputPosition;

    /// Returns the name in a cursor of a row that the accountant holds.
    fn name(&self, row: &R) -> Result<CarriedRow>;
}

/// The rules by which rows become batches, from the pipeline's clauses and the run's settings.
#[derive(Debug, Clone)]
pub(crate) struct BatchRules {
    pub(crate) skip: u64,
    /// Number of rows, SKIP plus TAKE, after which an epoch needs no more rows.
    pub(crate) until: u64,
    /// True if batches cross the ends of epochs (`REPEAT .. CONTINUOUS`).
    pub(crate) continuous: bool,
    pub(crate) grouping: Grouping,
    pub(crate) ranks: RankAssignment,
    /// The steps of this rank that the run computes.
    pub(crate) stride: WorkerStride,
}

impl BatchRules {
    /// Returns the rules of a pipeline for one rank, for a run that computes all steps of that
    /// rank.
    pub(crate) fn new(clauses: &Clauses, ranks: RankAssignment) -> Self {
        let take = clauses.take.unwrap_or(u64::MAX);
        Self {
            skip: clauses.skip,
            until: clauses.skip.saturating_add(take),
            continuous: clauses.repeat.continuous,
            grouping: Grouping::of(clauses),
            ranks,
            stride: WorkerStride::ALL,
        }
    }

    /// Returns the number of rows that SKIP and TAKE leave of the `rows` rows of an epoch.
    pub(crate) fn left_of(&self, rows: u64) -> u64 {
        rows.min(self.until).saturating_sub(self.skip)
    }
}

/// Value of [`PlannedBatch::rows`] for a batch that takes all computed rows that are in no batch
/// yet.
pub(crate) const ALL_ROWS: usize = usize::MAX;

/// The plan of a batch of this rank, made before the batch's failed rows are settled.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlannedBatch {
    pub(crate) epoch: u64,
    /// Step, counted from the beginning of the span (an epoch; the whole run under `CONTINUOUS`).
    pub(crate) step: u64,
    /// Number of rows of the batch. The batch takes the first computed rows that are in no batch
    /// yet.
    pub(crate) rows: usize,
    /// Number of rows in each pack, if rows are packed.
    pub(crate) packs: Option<Vec<u32>>,
    /// True if the batch repeats the rank's previous batch. If this is the first batch of a resumed
    /// run, the rows of the previous batch are computed again for this batch.
    pub(crate) repeats: bool,
    /// True if the step has no batch for this rank, so the rows are borrowed from another rank's
    /// batch. The other rank reports the failures of these rows.
    pub(crate) is_borrowed: bool,
    /// Number of rows (of packs, if rows are packed) that the batch has after it is filled up with
    /// repetitions of its rows; `None` if the batch is not filled up.
    pub(crate) units: Option<usize>,
    /// Cursor after this batch.
    pub(crate) cursor: Arc<Cursor>,
}

/// A batch of this rank with its rows.
#[derive(Debug)]
pub(crate) struct AssignedBatch<R> {
    pub(crate) rows: Vec<R>,
    pub(crate) plan: PlannedBatch,
}

/// Assigns rows to batches, ranks and steps, in stream order.
#[derive(Debug)]
pub(crate) struct Accountant<R> {
    rules: BatchRules,
    pub(crate) epoch: u64,
    /// Number of rows of the epoch that were counted so far, including the rows that SKIP leaves
    /// out.
    rows: u64,
    /// True if the epoch has no more rows.
    pub(crate) ended: bool,
    grouper: Grouper<R>,
    /// Number of complete batches of the span (an epoch; the whole run under `CONTINUOUS`) over all
    /// ranks. The first `base` of these batches precede the position at which this run began.
    batches: u64,
    pub(crate) base: u64,
    /// Number of steps of the span that ended so far.
    step: u64,
    /// Number of steps of this run that ended so far, over all spans.
    pub(crate) steps: u64,
    /// Number of batches in the last step of the span, while that step is ended and has no batch
    /// for some ranks; otherwise `None`.
    short: Option<u64>,
    /// This rank's rows in the current step, with the epoch in which their batch was completed;
    /// `None` until that batch is complete.
    mine: Option<(u64, Group<R>)>,
    /// Rows that this rank borrows if the current step has no batch for this rank, with the epoch
    /// in which the batch of these rows was completed.
    spare: Option<(u64, Group<R>)>,
    /// Largest number of rows (or packs) that any rank has in the current step.
    most: u64,
    closed: Vec<Group<R>>,
    /// This rank's batches that were emitted since the last call of
    /// [`take_assigned`](Self::take_assigned).
    assigned: Vec<AssignedBatch<R>>,
}

impl<R: Clone> Accountant<R> {
    /// Creates an accountant at the position of a cursor, without the rows that the cursor carries.
    pub(crate) fn new(rules: BatchRules, at: &Cursor) -> Self {
        Self {
            grouper: Grouper::new(rules.grouping.clone()),
            rules,
            epoch: at.epoch,
            rows: at.rows,
            ended: at.ended,
            batches: at.batches,
            base: at.batches,
            step: at.step,
            steps: 0,
            short: None,
            mine: None,
            spare: None,
            most: 0,
            closed: Vec::new(),
            assigned: Vec::new(),
        }
    }

    /// Adds the rows that a cursor carries, and emits the carried batches that are already
    /// complete. `at` is the point of the cursor.
    pub(crate) fn restore(
        &mut self,
        carry: Carry<(R, GroupKey)>,
        at: &impl StreamPoint<R>,
    ) -> Result<()> {
        self.grouper = Grouper::resume(self.rules.grouping.clone(), &carry);
        for Group { rows, packs } in carry.ready {
            let rows = rows.into_iter().map(|(row, _)| row).collect();
            self.closed.push(Group { rows, packs });
        }
        self.close_all(at)
    }

    /// Returns true if [`take_assigned`](Self::take_assigned) has batches to return.
    pub(crate) const fn has_assigned(&self) -> bool {
        !self.assigned.is_empty()
    }

    /// Returns the batches that were emitted since the last call, and forgets them.
    pub(crate) fn take_assigned(&mut self) -> Vec<AssignedBatch<R>> {
        std::mem::take(&mut self.assigned)
    }

    /// Begins an epoch. Unless batches cross epochs, a new span begins with the epoch. Does nothing
    /// if `epoch` is the current epoch.
    pub(crate) fn begin(&mut self, epoch: u64) {
        if epoch == self.epoch {
            return;
        }
        (self.epoch, self.rows, self.ended) = (epoch, 0, false);
        if !self.rules.continuous {
            (self.batches, self.base, self.step) = (0, 0, 0);
        }
    }

    /// Returns true if the epoch has all rows of its TAKE. The rest of the epoch need not be
    /// computed then.
    pub(crate) const fn take_reached(&self) -> bool {
        self.rows >= self.rules.until
    }

    /// Returns true if the epoch has yielded no step (or no row, if batches cross epochs). If the
    /// first epoch of an endless run is idle, all epochs may be idle.
    pub(crate) const fn is_idle(&self) -> bool {
        if self.rules.continuous {
            self.rows <= self.rules.skip
        } else {
            self.step == 0
        }
    }

    /// Counts one row. `at` is the point behind this row.
    pub(crate) fn count(&mut self, row: R, key: GroupKey, at: &impl StreamPoint<R>) -> Result<()> {
        self.rows += 1;
        if self.rows > self.rules.skip {
            self.grouper.push(row, key, &mut self.closed);
            // Most rows complete no batch.
            if !self.closed.is_empty() {
                self.close_all(at)?;
            }
        }
        Ok(())
    }

    /// Returns the maximum number of rows for the next call of [`count_run`](Self::count_run):
    /// while SKIP leaves rows out, the number of rows still to be left out; later, the number of
    /// rows that fit into both the open batch and TAKE. `None` if rows have to be counted one by
    /// one.
    pub(crate) fn room(&self) -> Option<u64> {
        let room = self.grouper.room()?;
        Some(if self.rows < self.rules.skip {
            self.rules.skip - self.rows
        } else {
            room.min(self.rules.until - self.rows)
        })
    }

    /// Counts consecutive rows, at most as many as [`room`](Self::room) returns. `at` is the point
    /// behind them.
    pub(crate) fn count_run(
        &mut self,
        rows: impl ExactSizeIterator<Item = R>,
        at: &impl StreamPoint<R>,
    ) -> Result<()> {
        let is_skipped = self.rows < self.rules.skip;
        self.rows += rows.len() as u64;
        if !is_skipped {
            self.grouper.push_run(rows, &mut self.closed);
            self.close_all(at)?;
        }
        Ok(())
    }

    /// Completes the open packs and buckets. Called when the horizon is reached.
    pub(crate) fn flush(&mut self, at: &impl StreamPoint<R>) -> Result<()> {
        self.grouper.flush(&mut self.closed);
        self.close_all(at)
    }

    /// Ends the span: emits the last batches, which may be short, and the last step.
    pub(crate) fn finish_span(&mut self, at: &impl StreamPoint<R>) -> Result<()> {
        self.ended = true;
        self.grouper.finish(&mut self.closed);
        self.close_all(at)?;
        let ranks = self.rules.ranks;
        let left = (self.batches - self.base) % ranks.batches_per_step();
        // If batches are left over, the last step has no batch for some ranks.
        if left > 0 {
            match ranks.equal_steps {
                EqualSteps::Drop => {
                    (self.mine, self.spare, self.most) = (None, None, 0);
                }
                EqualSteps::Count | EqualSteps::Pad => {
                    self.short = Some(left);
                    self.end_step(&[], at)?;
                    self.short = None;
                }
            }
        }
        Ok(())
    }

    /// Iterates over the held rows: rows that were counted, but whose batch was not emitted yet.
    pub(crate) fn held(&self) -> impl Iterator<Item = &R> {
        let parts = self.mine.iter().chain(&self.spare);
        let parts = parts.flat_map(|(_, group)| &group.rows);
        self.grouper.rows().chain(parts)
    }

    /// Iterates over the held rows mutably, so that a caller can renumber them.
    pub(crate) fn held_mut(&mut self) -> impl Iterator<Item = &mut R> {
        let parts = self.mine.iter_mut().chain(&mut self.spare);
        let parts = parts.flat_map(|(_, group)| &mut group.rows);
        self.grouper.rows_mut().chain(parts)
    }

    fn close_all(&mut self, at: &impl StreamPoint<R>) -> Result<()> {
        let mut closed = std::mem::take(&mut self.closed).into_iter();
        while let Some(group) = closed.next() {
            self.close(group, closed.as_slice(), at)?;
        }
        Ok(())
    }

    /// Adds the complete batch `group` to the current step, and ends the step if all batches of the
    /// step are complete. `behind` holds the complete batches that follow `group`.
    fn close(
        &mut self,
        group: Group<R>,
        behind: &[Group<R>],
        at: &impl StreamPoint<R>,
    ) -> Result<()> {
        let ranks = self.rules.ranks;
        let batch = self.batches - self.base;
        self.batches += 1;
        if ranks.pads_ranks {
            self.most = self.most.max(ranks.most(group.units()));
            if batch.is_multiple_of(ranks.batches_per_step()) {
                let largest = RankAssignment {
                    rank: ranks.world.saturating_sub(1),
                    ..ranks
                };
                self.spare = Some((self.epoch, share(group.clone(), &largest)));
            }
        }
        if ranks.is_mine(batch) {
            self.mine = Some((self.epoch, share(group, &ranks)));
        }
        if (batch + 1).is_multiple_of(ranks.batches_per_step()) {
            self.end_step(behind, at)?;
        }
        Ok(())
    }

    /// Ends the current step, and emits this rank's batch of the step. `behind` holds the complete
    /// batches that belong to later steps.
    fn end_step(&mut self, behind: &[Group<R>], at: &impl StreamPoint<R>) -> Result<()> {
        self.step += 1;
        self.steps += 1;
        let (mine, spare) = (self.mine.take(), self.spare.take());
        let most = std::mem::take(&mut self.most);
        if !self.rules.stride.has(self.steps - 1) {
            return Ok(());
        }
        let ranks = &self.rules.ranks;
        let fills = ranks.batch.remainder == Remainder::Pad;
        let pads = ranks.equal_steps == EqualSteps::Pad || fills;
        let is_idle = mine.as_ref().is_none_or(|(_, group)| group.units() == 0);
        // If the pipeline pads, a rank without a batch repeats its previous batch. The first step
        // has no previous batch, so the rank borrows rows in that step.
        let borrows = is_idle && spare.is_some() && (!pads || self.step == 1);
        let most = match self.short {
            // Ranks without a batch repeat their previous batch, which is full, so the largest
            // batch of the step has the size of a full batch.
            Some(_) if most > 0 && pads && self.step > 1 => ranks.full().unwrap_or(most),
            _ => most,
        };
        let (epoch, mine) = if borrows { spare } else { mine }.unzip();
        let rows = mine.as_ref().map_or(0, |group| group.rows.len());
        let plan = PlannedBatch {
            epoch: epoch.unwrap_or(self.epoch),
            step: self.step - 1,
            rows,
            packs: mine.as_ref().and_then(|group| group.packs.clone()),
            repeats: mine.is_none() && pads || rows == 0 && fills,
            is_borrowed: borrows,
            units: (most > 0 && ranks.batch.rows().is_some()).then_some(most as usize),
            cursor: Arc::new(self.cursor(behind, at)?),
        };
        let rows = mine.map(|group| group.rows).unwrap_or_default();
        self.assigned.push(AssignedBatch { rows, plan });
        Ok(())
    }

    /// Returns the cursor of the point `at`. `behind` holds the complete batches that were not emitted yet.
    fn cursor(&self, behind: &[Group<R>], at: &impl StreamPoint<R>) -> Result<Cursor> {
        let inputs = at.inputs();
        let mut cursor = Cursor {
            epoch: self.epoch,
            step: self.step,
            batches: self.batches,
            rows: self.rows,
            ended: self.ended,
            drawn: inputs.drawn,
            short: self.short,
            arms: inputs.inputs,
            ..Cursor::default()
        };
        if !self.grouper.is_empty() || !behind.is_empty() {
            let carry = Carry {
                ready: behind.to_vec(),
                ..self.grouper.carry()
            };
            cursor.set_carry(&carry.map(|row| at.name(row))?);
        }
        Ok(cursor)
    }
}

/// Returns the share of the batch `group` that belongs to the rank of `ranks`.
fn share<R>(mut group: Group<R>, ranks: &RankAssignment) -> Group<R> {
    let rows = match &mut group.packs {
        None => ranks.share(group.rows.len() as u64),
        Some(packs) => {
            let part = ranks.share(packs.len() as u64);
            let rows = |packs: &[u32]| packs.iter().map(|&rows| u64::from(rows)).sum::<u64>();
            let start = rows(&packs[..part.start as usize]);
            *packs = packs[part.start as usize..part.end as usize].to_vec();
            start..start + rows(packs)
        }
    };
    group.rows.truncate(rows.end as usize);
    group.rows.drain(..rows.start as usize);
    group
}
