//! A run of a job: its rank, its epochs and its first position.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use forebay_planner::clauses::{EqualSteps, OnError, Remainder};

use super::config::RunScope;
use super::row_count_source::{CountingMode, RowCountSource};
use crate::dead_letters::{DeadLetter, DeadLetterWriter};
use crate::error::Result;
use crate::job::OpenJob;
use crate::order::StoredRow;
use crate::stream::accountant::BatchRules;
use crate::stream::assignment::{RankAssignment, WorkerStride};
use crate::stream::cursor::{Cursor, InputCursor};
use crate::stream::token::Token;
use crate::tail::{Budget, Counter, Tail, Trial};

/// A run of a job that was not started yet.
#[derive(Debug, Clone)]
pub struct JobRun {
    /// The opened job, which runs share.
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
    pub(super) segment_rows: u64,
    /// Number of segments that are computed concurrently, and of segments that are read ahead of them.
    pub(super) in_flight: usize,
    pub(super) limit_batches: Option<u64>,
    pub(super) analyze: bool,
}

impl JobRun {
    /// Returns true if the run may end before its last epoch does.
    pub fn is_limited(&self) -> bool {
        self.limit_batches.is_some()
    }

    /// Returns the assignment of batches to ranks.
    pub fn ranks(&self) -> &RankAssignment {
        &self.rules.ranks
    }

    /// Returns the way in which rows are counted.
    pub(super) fn counting_mode(&self) -> CountingMode {
        match &self.counts {
            RowCountSource::AsComputed(_) => CountingMode::Counted,
            // A run of a single batch reads nothing before that batch.
            _ if matches!(self.scope, RunScope::Step { .. }) => CountingMode::Planned(u64::MAX),
            _ if self.rules.ranks.world == 1 && self.stride.of == 1 => CountingMode::Planned(0),
            // With this many rows, a window has a batch for each rank even if filters drop half of
            // its rows.
            _ => {
                let batch = self.rules.ranks.batch.rows().unwrap_or(u64::MAX);
                let batches = self
                    .rules
                    .ranks
                    .batches_per_step()
                    .saturating_mul(self.stride.of);
                let step = batch.saturating_mul(batches.saturating_mul(2));
                CountingMode::Planned(step.saturating_mul(2))
            }
        }
    }

    /// Returns true if the run also computes batches that other workers yield, because rows are
    /// grouped as they are computed, or because a batch may repeat the previous one.
    pub(super) fn computes_others(&self) -> bool {
        let pads = self.rules.ranks.equal_steps == EqualSteps::Pad
            || self.rules.ranks.batch.remainder == Remainder::Pad;
        self.stride.of > 1 && pads || self.counting_mode() == CountingMode::Counted
    }

    /// Returns the token that resumes at the beginning of this run.
    pub fn token(&self) -> Token {
        let beginning = || Cursor {
            epoch: self.first_epoch,
            arms: vec![InputCursor::beginning(0); self.job.passes.inputs()],
            ..Cursor::default()
        };
        let cursor = self.resume.clone().unwrap_or_else(beginning);
        Token::new(&self.job.name, &cursor)
    }

    /// Returns the epoch that follows the last one; `None` for an endless run.
    pub(super) fn end_epoch(&self) -> Option<u64> {
        let epochs = self.epochs?;
        Some(self.first_epoch.saturating_add(epochs))
    }

    /// Returns the number of stored rows in each window of an epoch.
    pub fn window_rows(&self, epoch: u64) -> Vec<u64> {
        let passes = &self.job.passes;
        let inputs = 0..passes.inputs();
        let of_input = |input| {
            let windows = passes.windows(input, (epoch, 0));
            windows.iter().map(|window| window.rows).collect::<Vec<_>>()
        };
        inputs.flat_map(of_input).collect()
    }

    /// Returns the number of rows in a segment, and the number of segments that run concurrently.
    pub fn segments(&self) -> (u64, usize) {
        (self.segment_rows, self.in_flight)
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
        let counter = Counter::new(self.rules.clone(), self.first_epoch, self.resume.as_ref());
        let ranks = self.rules.ranks;
        let mut tail = Tail::new(schema, snapshot, name, ranks, clauses, counter, replays)?;
        // All rows of dead letters have failed before and may fail again, so they are not counted
        // against the budget.
        tail.budget = self.allowed().filter(|_| !replays);
        let is_tried =
            matches!(self.scope, RunScope::All) && clauses.options.on_error != OnError::Fail;
        if is_tried {
            let has_all =
                self.resume.is_none() && self.rules.ranks.world == 1 && self.stride.of == 1;
            tail.trial = Trial::of(self.job.host_functions.clone(), has_all);
        }
        Ok(tail)
    }

    /// Returns the error budget, with the number of rows that this run has in an epoch; `None`
    /// without a budget.
    fn allowed(&self) -> Option<Budget> {
        let world = self.rules.ranks.world;
        let sees = if self.computes_others() {
            world
        } else {
            world.saturating_mul(self.stride.of)
        };
        let rows = self.epoch_rows.map(|rows| rows.div_ceil(sees));
        let budget = self.job.clauses.options.error_budget?;
        Some(Budget { budget, rows })
    }

    /// Returns the writer of dead letters, if the pipeline and the kind of run ask for one.
    pub(super) fn letter_writer(&self) -> Option<DeadLetterWriter> {
        let folder = self.job.dead_letters.clone()?;
        let is_inspection = self.replayed.is_some() || matches!(self.scope, RunScope::Step { .. });
        if is_inspection || self.analyze {
            return None;
        }
        let (plan, name) = (Arc::clone(&self.job.plan), Arc::clone(&self.job.name));
        let keep = self.job.clauses.options.dead_letter_bytes;
        let rank = self.rules.ranks.rank;
        Some(DeadLetterWriter::new(folder, keep, rank, plan, name))
    }
}
