//! The sequencer: decides in stream order, before rows are read, which rows are computed and which
//! batches the rows make.
//!
//! If the rows are known before they are computed, the sequencer drives the stream's accountant,
//! and the tail only cuts computed rows into batches. If a filter decides during computation which
//! rows exist (for a single rank only), the sequencer plans stored rows, and the tail drives the
//! accountant ([`counted`](super::counted)).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use datafusion::common::{DataFusionError, exec_datafusion_err};

use super::config::RunScope;
use super::inputs::Inputs;
use super::job_run::JobRun;
use super::segment_builder::{PlannedRow, SegmentBuilder};
use super::work::{Delivery, TakeReached, WorkItem};
use crate::error::Result;
use crate::job::row_counts::RowCounts;
use crate::order::PassName;
use crate::segment::OrderedSegment;
use crate::stream::accountant::{Accountant, AssignedBatch, PlannedBatch};
use crate::stream::cursor::Cursor;
use crate::stream::group::GroupKey;

/// The state of the sequencer between two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The next epoch begins.
    Begin,
    /// The epoch has begun, and the inputs are to be opened.
    Open,
    /// Rows of the epoch are planned.
    Rows,
    /// The run is complete.
    Done,
}

/// Plans the work of a run in stream order.
pub(super) struct Sequencer {
    pub(super) run: Arc<JobRun>,
    /// If the sequencer only counts steps: the number of rows left to count.
    count_only: Option<u64>,
    pub(super) stage: Stage,
    pub(super) epoch: u64,
    pub(super) inputs: Inputs,
    pub(super) accountant: Accountant<PlannedRow>,
    pub(super) building: SegmentBuilder,
    /// Batches that will be complete with the rows of `building`.
    pub(super) completed: Vec<PlannedBatch>,
    pub(super) out: VecDeque<WorkItem<OrderedSegment>>,
    /// Cursor to resume from; `None` once the inputs are open at the cursor.
    resume: Option<Cursor>,
    /// The step of the span (an epoch; the whole run under `CONTINUOUS`) at which the run resumed;
    /// `None` if the run began anew.
    pub(super) resumed_step: Option<u64>,
    pub(super) reached: TakeReached,
}

impl Sequencer {
    pub(super) fn new(run: Arc<JobRun>, reached: TakeReached) -> Self {
        let accountant = Accountant::new(run.rules.clone(), &run.first_cursor());
        Self {
            count_only: None,
            stage: Stage::Begin,
            epoch: accountant.epoch,
            inputs: Inputs::new(Arc::clone(&run)),
            accountant,
            completed: Vec::new(),
            building: SegmentBuilder::new(run.job.plan.multiplies),
            out: VecDeque::new(),
            resume: run.resume.clone(),
            resumed_step: None,
            reached,
            run,
        }
    }

    /// Creates a sequencer that only counts the steps of a run, and fails if the run has more than
    /// `most_rows` rows. The sequencer stages no window and does not use the cache.
    pub(super) fn count_only(run: Arc<JobRun>, most_rows: u64) -> Self {
        let mut this = Self::new(run, TakeReached::default());
        this.inputs.staged_from = u64::MAX;
        this.count_only = Some(most_rows);
        this
    }

    /// Returns the next item of work; `None` at the end of the run.
    pub(super) async fn next(&mut self) -> Option<WorkItem<OrderedSegment>> {
        loop {
            if let Some(step) = self.out.pop_front() {
                return Some(step);
            }
            let epoch = self.epoch;
            let is_counted = self.run.is_counted();
            let is_over = { self.run.end_epoch() }.is_some_and(|end| epoch >= end);
            let advanced = match self.stage {
                Stage::Done => return None,
                Stage::Begin if is_over => return None,
                Stage::Begin => {
                    self.out.push_back(WorkItem::Begin(epoch));
                    self.stage = Stage::Open;
                    Ok(())
                }
                Stage::Open => self.open().await.map(|()| self.stage = Stage::Rows),
                Stage::Rows if is_counted => self.counted().await,
                Stage::Rows => self.planned().await,
            };
            if let Err(error) = advanced {
                // An error at the opening of the inputs cannot follow the last row of a TAKE, so
                // such an error always ends the run.
                self.out.push_back(match self.stage {
                    Stage::Open => WorkItem::lost(error),
                    _ => WorkItem::Failed { epoch, error },
                });
                // Only the driver knows whether TAKE was complete before the error, so the next
                // epoch is planned.
                if self.stage == Stage::Rows && is_counted {
                    drop(self.building.take());
                    self.inputs.take_horizon();
                    self.next_epoch();
                } else {
                    self.stage = Stage::Done;
                }
            }
        }
    }

    /// Opens the inputs of an epoch at their beginning, or at the position of the cursor.
    async fn open(&mut self) -> Result<()> {
        let run = Arc::clone(&self.run);
        // Rows that one epoch computes can be read from the cache in the next epoch.
        if self.count_only.is_none() {
            run.epoch_begun(self.epoch).await;
        }
        self.accountant.begin(self.epoch);
        let Some(cursor) = self.resume.take() else {
            return Ok(self.inputs.open(&run.beginning(self.epoch)).await?);
        };
        self.resumed_step = Some(cursor.step);
        self.inputs.open(&cursor).await?;
        let carried = cursor.carry()?;
        let carry = carried.map(|row| self.inputs.picked(row))?;
        if run.is_counted() {
            return Ok(self.restore(&carry)?);
        }
        let mut counts = BTreeMap::new();
        let passes: BTreeSet<PassName> = carried.rows().map(|row| row.pass).collect();
        for pass in passes {
            counts.insert(pass, run.row_counts(pass).await?);
        }
        let keyed = carry.map(|row| {
            let counts = counts.get(&row.pass).and_then(Option::as_deref);
            Ok::<_, DataFusionError>((*row, key(row, counts)))
        })?;
        self.accountant.restore(keyed, &self.inputs)?;
        self.place_all().await
    }

    /// Plans rows until a work item is ready, or the epoch ends.
    async fn planned(&mut self) -> Result<()> {
        while self.out.is_empty() && self.stage == Stage::Rows {
            if self.accountant.ended || self.accountant.take_reached() {
                return self.end_of_epoch().await;
            }
            if self.count_only == Some(0) {
                return Err(
                    exec_datafusion_err!("the run has too many rows to count its steps").into(),
                );
            }
            let input = self.inputs.draw();
            if let Some(row) = self.inputs.all[input].peek() {
                self.plan_rows(input, row)?;
            } else if !self.enter(input).await? {
                self.accountant.ended = !self.inputs.next_pass(input).await?;
            } else if self.inputs.take_horizon() {
                self.accountant.flush(&self.inputs)?;
            }
            if self.accountant.has_assigned() {
                self.place_all().await?;
            }
        }
        Ok(())
    }

    /// Plans the next row of an input, or as many rows as can be taken at once.
    fn plan_rows(&mut self, input: usize, row: PlannedRow) -> Result<()> {
        let at = &mut self.inputs.all[input];
        // The keys of these rows are not needed, because the position of a row alone decides the
        // batch of the row.
        if row.nth == 0
            && at.counts.is_none()
            && self.run.job.mix().is_none()
            && let Some(room) = self.accountant.room()
        {
            let rows = at.take_run(usize::try_from(room).unwrap_or(usize::MAX));
            let taken = rows.len() as u64;
            self.count_only = self.count_only.map(|left| left.saturating_sub(taken));
            return { &mut self.accountant }.count_run(rows.into_iter(), &self.inputs);
        }
        self.count_only = self.count_only.map(|left| left - 1);
        let counts = at.counts.clone();
        let stored = row.stored;
        let all = counts.as_ref().map_or(1, |counts| counts.of_row(stored));
        if row.nth >= all {
            at.leave();
            return Ok(());
        }
        at.take(&row, Some(all));
        self.inputs.note_drawn();
        let is_dropped = counts.as_ref().is_some_and(|counts| counts.drops(stored));
        if is_dropped {
            return Ok(());
        }
        let key = key(&row, counts.as_deref());
        self.accountant.count(row, key, &self.inputs)
    }

    /// Makes an input enter the next window; returns `false` if the pass has no more windows.
    pub(super) async fn enter(&mut self, input: usize) -> Result<bool> {
        let held = self.accountant.held().map(|row| row.window).collect();
        Ok(self.inputs.enter(input, held).await?)
    }

    /// Converts the complete batches to work items.
    pub(super) async fn place_all(&mut self) -> Result<()> {
        for batch in self.accountant.take_assigned() {
            self.place(batch).await?;
        }
        Ok(())
    }

    async fn place(&mut self, batch: AssignedBatch<PlannedRow>) -> Result<()> {
        let AssignedBatch { rows, plan } = batch;
        if let RunScope::Step { epoch, step } = self.run.scope {
            let continuous = self.run.job.clauses.repeat.continuous;
            if plan.step != step || self.epoch != epoch && !continuous {
                return Ok(());
            }
            self.stage = Stage::Done;
        }
        // Nothing is computed after the batch that reaches the run's batch limit.
        let limit = self.run.limit_batches.unwrap_or(u64::MAX);
        if self.accountant.steps >= limit {
            self.stage = Stage::Done;
        }
        if self.count_only.is_some() {
            return Ok(());
        }
        if plan.repeats && self.resumed_step == Some(plan.step) {
            self.cut();
            return self.place_resumed(plan).await;
        }
        let room = self.run.segment_rows as usize;
        if !self.building.is_empty() && self.building.len() + rows.len() > room {
            self.cut();
        }
        for row in rows {
            if self.building.len() == room {
                self.cut();
            }
            self.building.push(&row, &self.inputs.windows)?;
        }
        self.completed.push(plan);
        if self.building.len() == room || self.stage == Stage::Done {
            self.cut();
        }
        Ok(())
    }

    /// Emits the collected rows, if any, with the batches that these rows complete.
    pub(super) fn cut(&mut self) {
        let completed = std::mem::take(&mut self.completed);
        if !self.building.is_empty() || !completed.is_empty() {
            self.emit(Delivery::Planned(completed));
        }
    }

    /// Emits the collected rows as a work item.
    pub(super) fn emit(&mut self, delivery: Delivery) {
        let rows = self.building.len();
        let work = OrderedSegment {
            planned: matches!(delivery, Delivery::Planned(_)).then_some(rows),
            ..self.building.take()
        };
        self.emit_segment(work, delivery);
    }

    /// Emits a segment as a work item.
    pub(super) fn emit_segment(&mut self, work: OrderedSegment, delivery: Delivery) {
        self.out.push_back(WorkItem::Rows {
            epoch: self.epoch,
            work,
            delivery,
        });
    }
}

fn key(row: &PlannedRow, counts: Option<&RowCounts>) -> GroupKey {
    counts.map_or_else(GroupKey::default, |counts| counts.key(row.stored, row.nth))
}
