//! The accountant of a stream: assigns each row to a batch, a rank and a step, and computes the cursor after each
//! batch.
//!
//! The accountant takes rows in stream order. Of a row it knows only the [`GroupKey`] and the name
//! in a cursor. A run that plans its rows before computing them passes the rows to be read; a run
//! that learns from computing which rows exist passes computed rows. Both kinds of run make the
//! same batches and the same tokens.

use std::convert::Infallible;
use std::sync::Arc;

use forebay_planner::clauses::{Clauses, EqualSteps, Remainder};

use super::assignment::{RankAssignment, WorkerStride};
use super::cursor::{CarriedRow, Cursor, InputPosition};
use super::group::{Carry, Group, GroupKey, Grouper, Grouping};

/// A row that a cursor can name.
pub(crate) trait StreamRow: Clone {
    /// Returns the row's name in a cursor.
    fn carried(&self) -> CarriedRow;
}

/// The rules by which rows become batches: from the pipeline's clauses and the run's rank.
#[derive(Debug, Clone)]
pub(crate) struct BatchRules {
    pub(crate) skip: u64,
    /// Number of rows after which an epoch needs no more: SKIP plus TAKE.
    pub(crate) until: u64,
    /// True if batches cross the ends of epochs (`REPEAT .. CONTINUOUS`).
    pub(crate) continuous: bool,
    pub(crate) grouping: Grouping,
    pub(crate) ranks: RankAssignment,
    /// The steps of this rank that the run computes.
    pub(crate) stride: WorkerStride,
}

impl BatchRules {
    /// Returns the rules of a pipeline for one rank, which computes all of its steps.
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

    /// Returns how many of `rows` rows remain after SKIP and TAKE.
    pub(crate) fn left_of(&self, rows: u64) -> u64 {
        rows.min(self.until).saturating_sub(self.skip)
    }
}

/// Value of [`PlannedBatch::rows`] for a batch that takes all available rows.
pub(crate) const ALL_ROWS: usize = usize::MAX;

/// A batch of this rank, before its failed rows are settled.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlannedBatch {
    pub(crate) epoch: u64,
    /// Step, counted from the beginning of the span (an epoch; the whole run under `CONTINUOUS`).
    pub(crate) step: u64,
    /// Number of rows of the batch, which are the next rows of the stream.
    pub(crate) rows: usize,
    /// Number of rows in each pack, if rows are packed.
    pub(crate) packs: Option<Vec<u32>>,
    /// True if the batch repeats the rank's previous batch. The first batch of a resumed run, whose
    /// previous batch is gone, brings its own rows.
    pub(crate) repeats: bool,
    /// True if the rows belong to another rank's batch, in a step that has none for this rank. The
    /// other rank reports their failures.
    pub(crate) is_borrowed: bool,
    /// Number of rows (or packs) to which the batch is filled up by repeating its own rows; `None`
    /// if it is not filled up.
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
    /// Number of rows of the epoch so far, before SKIP and TAKE.
    rows: u64,
    /// True if the epoch has no more rows.
    pub(crate) ended: bool,
    grouper: Grouper<R>,
    /// Number of complete batches of the span (an epoch; the whole run under `CONTINUOUS`) over all
    /// ranks. The first `base` of them precede this run.
    batches: u64,
    pub(crate) base: u64,
    /// Number of steps of the span so far.
    step: u64,
    /// Number of steps of this run so far, over all spans.
    pub(crate) steps: u64,
    /// Number of batches in the last step of the span, if it has none for some ranks.
    short: Option<u64>,
    /// This rank's share of the step that is being filled, and the epoch in which the share's batch
    /// was completed.
    mine: Option<(u64, Group<R>)>,
    /// Rows that this rank borrows if the step has no batch for it, and the epoch in which their
    /// batch was completed.
    spare: Option<(u64, Group<R>)>,
    /// Largest number of rows (or packs) that any rank has in the current step.
    most: u64,
    closed: Vec<Group<R>>,
    /// Complete batches of this rank that were not taken yet.
    assigned: Vec<AssignedBatch<R>>,
}

impl<R: StreamRow> Accountant<R> {
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

    /// Takes over the rows that a cursor carries, and emits the batches that were already complete.
    pub(crate) fn restore(&mut self, carry: Carry<(R, GroupKey)>, at: &InputPosition) {
        self.grouper = Grouper::resume(self.rules.grouping.clone(), &carry);
        for Group { rows, packs } in carry.ready {
            let rows = rows.into_iter().map(|(row, _)| row).collect();
            self.closed.push(Group { rows, packs });
        }
        self.close_all(|| at.clone());
    }

    /// Takes the batches that were emitted since the last call.
    pub(crate) fn take_assigned(&mut self) -> Vec<AssignedBatch<R>> {
        std::mem::take(&mut self.assigned)
    }

    /// Begins an epoch, and with it a new span unless batches cross epochs. Does nothing if it is
    /// the current epoch.
    pub(crate) fn begin(&mut self, epoch: u64) {
        if epoch == self.epoch {
            return;
        }
        (self.epoch, self.rows, self.ended) = (epoch, 0, false);
        if !self.rules.continuous {
            (self.batches, self.base, self.step) = (0, 0, 0);
        }
    }

    /// Returns true if the epoch has all rows of its TAKE, so that the rest of the epoch need not
    /// be computed.
    pub(crate) const fn take_reached(&self) -> bool {
        self.rows >= self.rules.until
    }

    /// Returns true if the epoch has yielded no step (or no row, if batches cross epochs). If that
    /// is so for the first epoch of an endless run, all epochs may yield nothing.
    pub(crate) const fn is_idle(&self) -> bool {
        if self.rules.continuous {
            self.rows <= self.rules.skip
        } else {
            self.step == 0
        }
    }

    /// Counts one row. `at` returns the positions of the inputs after this row.
    pub(crate) fn count(&mut self, row: R, key: GroupKey, at: impl Fn() -> InputPosition) {
        self.rows += 1;
        if self.rows > self.rules.skip {
            self.grouper.push(row, key, &mut self.closed);
            self.close_all(at);
        }
    }

    /// Returns the number of rows that [`count_run`](Self::count_run) may take at once: the rest of
    /// the rows that SKIP leaves out, or those that the open batch has room for. `None` if rows
    /// have to be counted one by one.
    pub(crate) fn room(&self) -> Option<u64> {
        let room = self.grouper.room()?;
        Some(if self.rows < self.rules.skip {
            self.rules.skip - self.rows
        } else {
            room.min(self.rules.until - self.rows)
        })
    }

    /// Counts consecutive rows, at most as many as there is [`room`](Self::room) for.
    pub(crate) fn count_run(
        &mut self,
        rows: impl ExactSizeIterator<Item = R>,
        at: impl Fn() -> InputPosition,
    ) {
        let is_skipped = self.rows < self.rules.skip;
        self.rows += rows.len() as u64;
        if !is_skipped {
            self.grouper.push_run(rows, &mut self.closed);
            self.close_all(at);
        }
    }

    /// Completes the open packs and buckets, because the horizon was reached.
    pub(crate) fn flush(&mut self, at: impl Fn() -> InputPosition) {
        self.grouper.flush(&mut self.closed);
        self.close_all(at);
    }

    /// Ends the span: emits the last batches, which may be short, and the last step.
    pub(crate) fn finish_span(&mut self, at: impl Fn() -> InputPosition) {
        self.ended = true;
        self.grouper.finish(&mut self.closed);
        self.close_all(&at);
        let ranks = self.rules.ranks;
        let left = (self.batches - self.base) % ranks.batches_per_step();
        // The last step has no batch for some ranks.
        if left > 0 {
            match ranks.equal_steps {
                EqualSteps::Drop => {
                    (self.mine, self.spare, self.most) = (None, None, 0);
                }
                EqualSteps::Count | EqualSteps::Pad => {
                    self.short = Some(left);
                    self.end_step(&[], &at);
                    self.short = None;
                }
            }
        }
    }

    /// Iterates over the held rows: those that were counted, but whose batch was not emitted yet.
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

    fn close_all(&mut self, at: impl Fn() -> InputPosition) {
        let mut closed = std::mem::take(&mut self.closed).into_iter();
        while let Some(group) = closed.next() {
            self.close(group, closed.as_slice(), &at);
        }
    }

    /// Takes a complete batch, and ends the step if all its batches are complete. `behind` holds
    /// the complete batches that follow.
    fn close(&mut self, group: Group<R>, behind: &[Group<R>], at: &impl Fn() -> InputPosition) {
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
            self.end_step(behind, at);
        }
    }

    /// Emits this rank's batch of the step, and begins the next step.
    fn end_step(&mut self, behind: &[Group<R>], at: &impl Fn() -> InputPosition) {
        self.step += 1;
        self.steps += 1;
        let (mine, spare) = (self.mine.take(), self.spare.take());
        let most = std::mem::take(&mut self.most);
        if !self.rules.stride.has(self.steps - 1) {
            return;
        }
        let ranks = &self.rules.ranks;
        let fills = ranks.batch.remainder == Remainder::Pad;
        let pads = ranks.equal_steps == EqualSteps::Pad || fills;
        let is_idle = mine.as_ref().is_none_or(|(_, group)| group.units() == 0);
        // Padding by the pipeline repeats the rank's previous batch, which does not exist in the
        // first step.
        let borrows = is_idle && spare.is_some() && (!pads || self.step == 1);
        let most = match self.short {
            // A repeated batch has the size of the batch that it repeats.
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
            cursor: Arc::new(self.cursor(behind, at())),
        };
        let rows = mine.map(|group| group.rows).unwrap_or_default();
        self.assigned.push(AssignedBatch { rows, plan });
    }

    /// Returns the current cursor. `behind` holds the batches that are complete but not emitted.
    fn cursor(&self, behind: &[Group<R>], at: InputPosition) -> Cursor {
        let mut cursor = Cursor {
            epoch: self.epoch,
            step: self.step,
            batches: self.batches,
            rows: self.rows,
            ended: self.ended,
            drawn: at.drawn,
            short: self.short,
            arms: at.inputs,
            ..Cursor::default()
        };
        if !self.grouper.is_empty() || !behind.is_empty() {
            let carry = Carry {
                ready: behind.to_vec(),
                ..self.grouper.carry()
            };
            let Ok(carry) = carry.map(|row| Ok::<_, Infallible>(row.carried()));
            cursor.set_carry(&carry);
        }
        cursor
    }
}

/// Returns a rank's share of a batch.
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
