//! A run of a job: its rank, its epochs and its first position.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use forebay_planner::clauses::{EqualSteps, OnError, Remainder};

use super::config::RunScope;
use super::epoch_gate::EpochGate;
use super::segment_engine::SegmentEngine;
use crate::dead_letters::{DeadLetter, DeadLetterWriter};
use crate::error::{Error, Result};
use crate::job::row_counts::RowCounts;
use crate::job::{JobWork, OpenJob};
use crate::order::StoredRow;
use crate::stream::accountant::BatchRules;
use crate::stream::assignment::{RankAssignment, WorkerStride};
use crate::stream::cursor::{Cursor, InputCursor};
use crate::stream::token::Token;
use crate::tail::{Budget, Counter, FunctionTrial, Tail};

/// The way in which a run learns the number of output rows that each stored row gives.
#[derive(Debug, Clone)]
pub(super) enum RowCountSource {
    /// Each stored row gives one row, so nothing is counted.
    Nothing,
    /// The counts, which are known before rows are read and are the same in every epoch.
    Fixed(Arc<RowCounts>),
    /// Random draws decide the counts, so rows are counted for each pass.
    Passes,
    /// Rows are counted as they are computed. If a filter decides which rows the inputs of a MIX
    /// give, the value holds the counts of these inputs.
    AsComputed(Option<Arc<RowCounts>>),
}

/// A run that was not started yet.
#[derive(Debug, Clone)]
pub struct JobRun {
    /// The opened job. Several runs may share the job.
    pub job: Arc<OpenJob>,
    /// Rules for batches and ranks, and the steps to compute.
    pub(crate) rules: BatchRules,
    /// The share of the rank's batches that the run yields.
    pub stride: WorkerStride,
    /// First epoch.
    pub first_epoch: u64,
    /// Number of epochs; `None` if unlimited.
    pub epochs: Option<u64>,
    /// Number of rows of each epoch after SKIP and TAKE, over all ranks; `None` if rows are counted
    /// as they are computed.
    pub epoch_rows: Option<u64>,
    pub(super) counts: RowCountSource,
    /// Cursor to resume from; `None` to begin with the first epoch.
    pub(super) resume: Option<Cursor>,
    pub(super) scope: RunScope,
    /// Dead letters to replay, with their stored rows; `None` if the run is not a replay.
    pub(super) replayed: Option<Vec<(StoredRow, DeadLetter)>>,
    /// Number of rows in a segment.
    pub segment_rows: u64,
    /// Maximum number of segments that are computed concurrently, and of segments that are read
    /// before they can be computed.
    pub in_flight: usize,
    /// Number of this rank's batches after which the run ends; `None` for no limit.
    pub limit_batches: Option<u64>,
    pub(super) analyze: bool,
    /// The engine that computes the segments; `None` to compute them in this process.
    pub(super) engine: Option<Arc<dyn SegmentEngine>>,
    /// Holds back the epochs whose rows the epoch before them computes.
    pub(super) gate: Arc<EpochGate>,
}

impl JobRun {
    /// Returns a function that tells the work that was done for the run's job so far, in this process
    /// or by the run's engine.
    pub fn work_meter(&self) -> impl Fn() -> JobWork + use<> {
        let (engine, job) = (self.engine.clone(), Arc::clone(&self.job));
        move || match &engine {
            Some(engine) => engine.work(&job),
            None => job.work(),
        }
    }

    /// Returns the columns that this process computes itself, each as `name = expression`, if an
    /// engine computes the rest elsewhere.
    pub fn last_steps(&self) -> &[String] {
        let engine = self.engine.as_deref();
        engine.map_or(&[], SegmentEngine::last_steps)
    }

    /// Returns the assignment of batches to ranks.
    pub fn ranks(&self) -> &RankAssignment {
        &self.rules.ranks
    }

    /// Returns true if rows are counted as they are computed, rather than before they are read.
    pub(super) const fn is_counted(&self) -> bool {
        matches!(self.counts, RowCountSource::AsComputed(_))
    }

    /// Returns true if windows are staged before their rows are ordered, so that the rows that a
    /// scan prunes are neither ordered nor planned.
    pub(super) const fn orders_pruned(&self) -> bool {
        self.is_counted() && self.engine.is_none()
    }

    /// Returns true if the run yields every batch of the stream.
    fn is_only(&self) -> bool {
        self.rules.ranks.world == 1 && self.stride.of == 1
    }

    /// Returns the minimum number of stored rows with which a window is staged ahead. A window of
    /// fewer rows may have no rows of this run.
    pub(super) fn staged_from(&self) -> u64 {
        // A run of a single step reads only one batch, so no window is staged ahead. Neither does a
        // run whose segments are computed elsewhere.
        if matches!(self.scope, RunScope::Step { .. }) || self.engine.is_some() {
            return u64::MAX;
        }
        if self.is_only() {
            return 0;
        }
        // A window of this many rows has a batch for each rank, even if filters drop half of the
        // window's rows.
        let ranks = &self.rules.ranks;
        let batches = ranks.batches_per_step().saturating_mul(self.stride.of);
        let step = batches.saturating_mul(ranks.batch.rows().unwrap_or(u64::MAX));
        step.saturating_mul(4)
    }

    /// Returns true if the run also computes batches that other workers yield, because rows are
    /// grouped as they are computed, or because a batch may repeat the previous one.
    pub(super) fn computes_others(&self) -> bool {
        let pads = self.rules.ranks.equal_steps == EqualSteps::Pad
            || self.rules.ranks.batch.remainder == Remainder::Pad;
        self.stride.of > 1 && pads || self.is_counted()
    }

    /// Returns the token that resumes at the beginning of this run.
    pub fn token(&self) -> Token {
        Token::new(&self.job.name, &self.first_cursor())
    }

    /// Returns the cursor at the beginning of this run.
    pub(super) fn first_cursor(&self) -> Cursor {
        let beginning = || self.beginning(self.first_epoch);
        self.resume.clone().unwrap_or_else(beginning)
    }

    /// Returns the cursor at the beginning of an epoch.
    pub(super) fn beginning(&self, epoch: u64) -> Cursor {
        Cursor {
            epoch,
            arms: vec![InputCursor::default(); self.job.passes.inputs()],
            ..Cursor::default()
        }
    }

    /// Returns the number of the last epoch plus 1; `None` for an endless run.
    pub(super) fn end_epoch(&self) -> Option<u64> {
        let epochs = self.epochs?;
        Some(self.first_epoch.saturating_add(epochs))
    }

    /// Checks that an endless run will yield a batch. `is_idle` is true if the run's first epoch
    /// has yielded no batch (or, if batches cross epochs, no row).
    pub(super) fn check_endless(&self, is_idle: bool) -> Result<()> {
        if is_idle && self.epochs.is_none() && self.resume.is_none() {
            return Err(Error::Config(
                "an epoch has no rows for a batch, so REPEAT without end would never yield one"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Returns the number of stored rows in each window of the first pass over each input in
    /// `epoch`.
    pub fn window_rows(&self, epoch: u64) -> Vec<u64> {
        let passes = &self.job.passes;
        let inputs = 0..passes.inputs();
        let of_input = |input| {
            let windows = passes.windows(input, (epoch, 0));
            windows.iter().map(|window| window.rows).collect::<Vec<_>>()
        };
        inputs.flat_map(of_input).collect()
    }

    /// Returns the schema of the batches.
    ///
    /// # Errors
    /// Fails if a column cannot be packed or padded.
    pub fn schema(&self) -> Result<SchemaRef> {
        Ok(Arc::clone(self.tail()?.schema()))
    }

    pub(super) fn tail(&self) -> Result<Tail> {
        let plan = &self.job.plan;
        let snapshot = Arc::clone(&plan.data.snapshot);
        let schema = plan.reader.fragment.schema();
        let (name, clauses) = (Arc::clone(&self.job.name), &self.job.clauses);
        let replays = self.replayed.is_some();
        let counter = Counter::new(self.rules.clone(), &self.first_cursor());
        let ranks = self.rules.ranks;
        let mut tail = Tail::new(schema, snapshot, name, ranks, clauses, counter, replays)?;
        // All rows of dead letters have failed before and may fail again, so their failures do not
        // count against the error budget.
        tail.budget = self.allowed().filter(|_| !replays);
        let is_tried =
            matches!(self.scope, RunScope::All) && clauses.options.on_error != OnError::Fail;
        if is_tried {
            let has_all = self.resume.is_none() && self.is_only();
            tail.trial = FunctionTrial::of(self.job.host_functions.clone(), has_all);
        }
        Ok(tail)
    }

    /// Returns the error budget, with the number of rows that this run has in an epoch; `None`
    /// without a budget.
    fn allowed(&self) -> Option<Budget> {
        let budget = self.job.clauses.options.error_budget?;
        let mut shares = self.rules.ranks.world;
        if !self.computes_others() {
            shares = shares.saturating_mul(self.stride.of);
        }
        let rows = self.epoch_rows.map(|rows| rows.div_ceil(shares));
        Some(Budget { budget, rows })
    }

    /// Returns the writer of dead letters; `None` if the pipeline has no folder for dead letters,
    /// or if the run is a replay, a single step or an analysis.
    pub(super) fn letter_writer(&self) -> Option<DeadLetterWriter> {
        let folder = self.job.dead_letters.clone()?;
        if !matches!(self.scope, RunScope::All) || self.analyze {
            return None;
        }
        let (plan, name) = (Arc::clone(&self.job.plan), Arc::clone(&self.job.name));
        let keep = self.job.clauses.options.dead_letter_bytes;
        let rank = self.rules.ranks.rank;
        Some(DeadLetterWriter::new(folder, keep, rank, plan, name))
    }
}
