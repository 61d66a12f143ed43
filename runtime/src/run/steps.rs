//! Number of steps of a run. The number is computed if batches have a fixed number of rows;
//! otherwise, steps are counted by planning the run.

use std::sync::Arc;

use super::job_run::{JobRun, RowCountSource};
use super::sequencer::Sequencer;
use super::work::WorkItem;

/// Maximum number of rows to plan when counting steps. If a run has more rows, the number of steps
/// is unknown.
const MOST_ROWS: u64 = 20_000_000;

impl JobRun {
    /// Returns the number of rows in a span of batches (an epoch, or all epochs under `CONTINUOUS`): `None` if
    /// unknown, `u64::MAX` if unlimited.
    fn span_rows(&self) -> Option<u64> {
        let rows = self.epoch_rows.filter(|_| self.rules.grouping.is_plain())?;
        if !self.job.clauses.repeat.continuous {
            return Some(rows);
        }
        Some(
            self.epochs
                .map_or(u64::MAX, |epochs| rows.saturating_mul(epochs)),
        )
    }

    /// Returns the number of batches in a span (an epoch; the whole run under `CONTINUOUS`), over
    /// all ranks; `None` if unknown.
    pub fn batches_per_span(&self) -> Option<u64> {
        self.rules.ranks.batches(self.span_rows()?)
    }

    /// Returns the number of steps that every rank takes in an epoch (in the whole run under
    /// `CONTINUOUS`); `None` if unknown.
    pub fn steps_per_span(&self) -> Option<u64> {
        self.batches_per_span()
            .map(|batches| self.rules.ranks.steps(batches))
    }

    /// Returns the number of batches that the whole run yields; `None` if unknown or infinite.
    pub fn steps(&self) -> Option<u64> {
        let limit = self.limit_batches;
        let steps = match self.epochs {
            Some(epochs) => {
                let steps = self.steps_per_span()?;
                let continuous = self.job.clauses.repeat.continuous;
                let spans = if continuous { 1 } else { epochs };
                let all = spans.saturating_mul(steps);
                let left = all.saturating_sub(self.steps_before(steps));
                left.min(limit.unwrap_or(u64::MAX))
            }
            None => limit?,
        };
        Some(self.stride.among(steps))
    }

    /// Returns the number of steps before the position at which the run resumes. `per_span` is the
    /// number of steps in a span. After that position, the batches in the rest of the span are
    /// assigned to ranks anew.
    fn steps_before(&self, per_span: u64) -> u64 {
        let Some(cursor) = &self.resume else {
            return 0;
        };
        let spans = if self.job.clauses.repeat.continuous {
            0
        } else {
            cursor.epoch.saturating_sub(self.first_epoch)
        };
        let batches = self.batches_per_span().unwrap_or(0);
        let left = batches.saturating_sub(cursor.batches);
        let taken = per_span.saturating_sub(self.rules.ranks.steps(left));
        spans.saturating_mul(per_span).saturating_add(taken)
    }

    /// Counts the steps that every rank takes in the first epoch (in the whole run under
    /// `CONTINUOUS`). If packs, buckets or a mix decide which rows make a batch, the run is planned
    /// without reading rows. Returns `None` if rows are counted as they are computed, a random
    /// filter decides which rows exist, the steps to count are endless, or the run has too many
    /// rows.
    pub async fn steps_of_first_epoch(&self) -> Option<u64> {
        self.count_by_traversal(true).await
    }

    /// Returns the number of batches that the whole run yields, and counts the batches by planning
    /// the run if necessary; `None` if the number is unknown or infinite.
    pub async fn all_steps(&self) -> Option<u64> {
        if let Some(steps) = self.steps() {
            return Some(steps);
        }
        let steps = self.count_by_traversal(false).await?;
        let steps = steps.min(self.limit_batches.unwrap_or(u64::MAX));
        Some(self.stride.among(steps))
    }

    async fn count_by_traversal(&self, first_epoch: bool) -> Option<u64> {
        let known = matches!(
            self.counts,
            RowCountSource::Nothing | RowCountSource::Fixed(_)
        );
        let continuous = self.job.clauses.repeat.continuous;
        let endless = self.epochs.is_none() && (continuous || !first_epoch);
        if !known || endless || self.replayed.is_some() {
            return None;
        }
        let mut sequencer = Sequencer::count_only(Arc::new(self.clone()), MOST_ROWS);
        let mut begun = false;
        while let Some(step) = sequencer.next().await {
            match step {
                WorkItem::Begin(_) if begun && first_epoch && !continuous => break,
                WorkItem::Begin(_) => begun = true,
                // The run itself will report the error.
                WorkItem::Failed { .. } => return None,
                WorkItem::Rows { .. } | WorkItem::Skipped => {}
            }
        }
        Some(sequencer.accountant.steps)
    }
}
