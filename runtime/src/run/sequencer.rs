//! The sequencer: goes through the rows of a run in stream order before anything is read, and
//! decides which rows are computed and which batches they make.
//!
//! If all rows are known beforehand, the sequencer drives the stream's accountant, and the tail
//! only cuts the computed rows into batches. If a filter decides as rows are computed, which is
//! possible for a single rank only, the sequencer plans rows in order and the tail drives the
//! accountant ([`counted`](super::counted)).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use datafusion::common::{DataFusionError, exec_datafusion_err};

use super::config::RunScope;
use super::inputs::Inputs;
use super::job_run::JobRun;
use super::planned_row::PlannedRow;
use super::row_count_source::CountingMode;
use super::segment_builder::SegmentBuilder;
use super::work::{TakeReached, WorkItem};
use crate::error::Result;
use crate::job::row_counts::RowCounts;
use crate::segment::SegmentRequest;
use crate::stream::accountant::{Accountant, AssignedBatch, PlannedBatch};
use crate::stream::cursor::Cursor;
use crate::stream::group::GroupKey;

/// The state of the sequencer between two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The next epoch begins.
    Begin,
    /// The epoch has begun, and its inputs are to be opened.
    Open,
    /// Rows of the epoch are planned.
    Rows,
    /// The run is complete.
    Done,
}

/// Plans the work of a run in stream order.
#[derive(Debug)]
pub(super) struct Sequencer {
    pub(super) run: Arc<JobRun>,
    pub(super) reading: CountingMode,
    /// If steps are only counted: the number of rows that may still be counted.
    pub(super) count_only: Option<u64>,
    pub(super) stage: Stage,
    pub(super) epoch: u64,
    pub(super) ended: bool,
    pub(super) inputs: Inputs,
    pub(super) accountant: Accountant<PlannedRow>,
    /// Complete batches that are not yet part of a work item.
    assigned: Vec<AssignedBatch<PlannedRow>>,
    pub(super) building: SegmentBuilder,
    /// Batches that will be complete with the rows of `building`.
    pub(super) completed: Vec<PlannedBatch>,
    pub(super) out: VecDeque<WorkItem<SegmentRequest>>,
    resume: Option<Cursor>,
    /// The step of the span (an epoch; the whole run under `CONTINUOUS`) at which the run resumed;
    /// `None` if it did not resume.
    pub(super) resumed_step: Option<u64>,
    pub(super) reached: TakeReached,
}

impl Sequencer {
    pub(super) fn new(run: Arc<JobRun>, reached: TakeReached) -> Self {
        let reading = run.counting_mode();
        Self::reading(run, reached, reading)
    }

    /// Creates a sequencer that only counts the steps of a run, over at most `most_rows` rows. It
    /// stages no window and does not use the cache.
    pub(super) fn count_only(run: Arc<JobRun>, most_rows: u64) -> Self {
        let reading = CountingMode::Planned(u64::MAX);
        let mut this = Self::reading(run, TakeReached::default(), reading);
        this.count_only = Some(most_rows);
        this
    }

    fn reading(run: Arc<JobRun>, reached: TakeReached, reading: CountingMode) -> Self {
        let resume = run.resume.clone();
        let rules = run.rules.clone();
        let accountant = match &resume {
            Some(cursor) => Accountant::at(rules, cursor),
            None => Accountant::new(rules, run.first_epoch),
        };
        Self {
            reading,
            count_only: None,
            stage: Stage::Begin,
            epoch: accountant.epoch(),
            ended: false,
            inputs: Inputs::new(Arc::clone(&run), reading),
            accountant,
            assigned: Vec::new(),
            completed: Vec::new(),
            building: SegmentBuilder::new(run.job.plan.multiplies),
            out: VecDeque::new(),
            resume,
            resumed_step: None,
            reached,
            run,
        }
    }

    /// Returns the next item of work; `None` at the end of the run.
    pub(super) async fn next(&mut self) -> Option<WorkItem<SegmentRequest>> {
        loop {
            if let Some(step) = self.out.pop_front() {
                return Some(step);
            }
            let epoch = self.epoch;
            let advanced = match self.stage {
                Stage::Done => return None,
                Stage::Begin => {
                    self.begin();
                    Ok(())
                }
                Stage::Open => self.open().await.map(|()| self.stage = Stage::Rows),
                Stage::Rows if self.reading == CountingMode::Counted => self.counted().await,
                Stage::Rows => self.planned().await,
            };
            if let Err(error) = advanced {
                // Where a run resumes, an error cannot follow the last row of a TAKE, so it always
                // ends the run.
                self.out.push_back(match self.stage {
                    Stage::Open => WorkItem::lost(error),
                    _ => WorkItem::Failed { epoch, error },
                });
                // Only the driver knows whether TAKE had all its rows before the error, so the next
                // epoch is planned in any case.
                if self.stage == Stage::Rows && self.reading == CountingMode::Counted {
                    drop(self.building.take());
                    self.inputs.take_horizon();
                    self.next_epoch();
                } else {
                    self.stage = Stage::Done;
                }
            }
        }
    }

    /// Begins the next epoch, or ends the run after the last one.
    fn begin(&mut self) {
        let last = self.run.end_epoch();
        if last.is_some_and(|last| self.epoch >= last) {
            self.stage = Stage::Done;
            return;
        }
        self.out.push_back(WorkItem::Begin(self.epoch));
        self.stage = Stage::Open;
    }

    /// Opens the inputs of an epoch at their beginning, or at the position of the cursor.
    async fn open(&mut self) -> Result<()> {
        let run = Arc::clone(&self.run);
        // Rows that one epoch computes can be read from the cache in the next epoch.
        if let Some(cached) = &run.job.plan.reader.cached
            && self.count_only.is_none()
        {
            cached.epoch_begun(self.epoch).await;
        }
        self.accountant.begin(self.epoch);
        let Some(cursor) = self.resume.take() else {
            self.ended = false;
            return Ok(self.inputs.open(self.epoch).await?);
        };
        self.resumed_step = Some(cursor.step);
        self.ended = cursor.ended;
        self.inputs.resume(&cursor).await?;
        let carried = cursor.carry()?;
        let carry = carried.map(|row| self.inputs.picked(row))?;
        if self.reading == CountingMode::Counted {
            return Ok(self.restore(&carry, &carried)?);
        }
        let mut counts = BTreeMap::new();
        for pass in carried.rows().map(|row| row.pass) {
            if let Entry::Vacant(entry) = counts.entry(pass) {
                entry.insert(run.row_counts(pass).await?);
            }
        }
        let keyed = carry.map(|row| {
            let counts = counts.get(&row.pass).and_then(Option::as_deref);
            Ok::<_, DataFusionError>((*row, key(row, counts)))
        })?;
        let at = self.inputs.position();
        { &mut self.accountant }.restore(keyed, &at, &mut self.assigned);
        self.place_all().await
    }

    /// Plans rows until there is an item of work, or the epoch ends.
    async fn planned(&mut self) -> Result<()> {
        while self.out.is_empty() && self.stage == Stage::Rows {
            if self.ended || self.accountant.take_reached() {
                return self.end_of_epoch().await;
            }
            if self.count_only == Some(0) {
                return Err(
                    exec_datafusion_err!("the run has too many rows to count its steps").into(),
                );
            }
            let input = self.inputs.draw();
            if self.inputs.input(input).peek().is_some() {
                self.plan_rows(input);
            } else if !self.enter(input).await? {
                self.ended = !self.inputs.next_pass(input).await?;
            } else if self.inputs.take_horizon() {
                let at = || self.inputs.position();
                self.accountant.flush(at, &mut self.assigned);
            }
            if !self.assigned.is_empty() {
                self.place_all().await?;
            }
        }
        Ok(())
    }

    /// Plans the next row of an input, or as many rows as can be taken at once.
    fn plan_rows(&mut self, input: usize) {
        let (run, inputs) = (&self.run, &mut self.inputs);
        let snapshot = &run.job.plan.data.snapshot;
        let at = inputs.input_mut(input);
        let Some((row, nth)) = at.peek() else { return };
        let (window, pass) = (at.window.as_ref().map_or(0, |w| w.id), at.pass);
        // The keys of these rows are not needed: positions alone decide which batch each row
        // belongs to.
        if nth == 0
            && at.counts.is_none()
            && run.job.mix().is_none()
            && let Some(room) = self.accountant.room()
        {
            let run = at.take_run(usize::try_from(room).unwrap_or(usize::MAX), snapshot);
            let taken = run.len() as u64;
            self.count_only = self.count_only.map(|left| left.saturating_sub(taken));
            let picked: Vec<PlannedRow> = { run.iter() }
                .map(|&row| PlannedRow {
                    row,
                    stored: snapshot.stored(row),
                    nth: 0,
                    window,
                    pass,
                })
                .collect();
            let position = || inputs.position();
            let rows = picked.into_iter();
            { &mut self.accountant }.count_run(rows, position, &mut self.assigned);
            return;
        }
        self.count_only = self.count_only.map(|left| left - 1);
        let stored = snapshot.stored(row);
        let counts = at.counts.clone();
        let all = counts.as_ref().map_or(1, |counts| counts.of_row(stored));
        if nth >= all {
            at.leave();
            return;
        }
        at.take(stored, 1, Some(all));
        inputs.note_drawn();
        if counts.as_ref().is_some_and(|counts| counts.drops(stored)) {
            return;
        }
        let picked = PlannedRow {
            row,
            stored,
            nth,
            window,
            pass,
        };
        let (key, position) = (key(&picked, counts.as_deref()), || inputs.position());
        { &mut self.accountant }.count(picked, key, position, &mut self.assigned);
    }

    /// Makes an input enter its next window; returns `false` if it has none.
    pub(super) async fn enter(&mut self, input: usize) -> Result<bool> {
        let held = || self.accountant.held().map(|row| row.window).collect();
        Ok(self.inputs.enter(input, held).await?)
    }

    /// Converts the complete batches to work items.
    pub(super) async fn place_all(&mut self) -> Result<()> {
        for batch in std::mem::take(&mut self.assigned) {
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
        // Nothing is computed after the last batch of the run's batch limit.
        let limit = self.run.limit_batches.unwrap_or(u64::MAX);
        if self.accountant.steps() >= limit {
            self.stage = Stage::Done;
        }
        if self.count_only.is_some() {
            return Ok(());
        }
        let epoch = self.epoch;
        if plan.repeats && self.resumed_step == Some(plan.step) {
            self.cut(epoch);
            return self.place_resumed(plan).await;
        }
        let room = self.run.segment_rows as usize;
        if !self.building.is_empty() && self.building.len() + rows.len() > room {
            self.cut(epoch);
        }
        for row in rows {
            if self.building.len() == room {
                self.cut(epoch);
            }
            self.building.push(&row, &self.inputs.windows)?;
        }
        self.completed.push(plan);
        if self.building.len() == room || self.stage == Stage::Done {
            self.cut(epoch);
        }
        Ok(())
    }

    /// Emits the collected rows as a work item.
    pub(super) fn cut(&mut self, epoch: u64) {
        let completed = std::mem::take(&mut self.completed);
        self.out.extend(self.building.cut(epoch, completed));
    }

    /// Ends the span of batches.
    pub(super) async fn end_of_span(&mut self) -> Result<()> {
        let at = || self.inputs.position();
        self.accountant.finish_span(at, &mut self.assigned);
        self.place_all().await
    }
}

fn key(row: &PlannedRow, counts: Option<&RowCounts>) -> GroupKey {
    counts.map_or_else(GroupKey::default, |counts| counts.key(row.stored, row.nth))
}
