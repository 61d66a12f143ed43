//! How many steps a run takes: arithmetic where batches are so many rows, else gone through in advance.

use std::sync::Arc;

use super::Opened;
use super::arm::Reading;
use super::known::Known;
use super::sequencer::Sequencer;
use super::work::{Satisfied, Step};

/// Rows that are gone through at most to count steps.
const MOST_ROWS: u64 = 20_000_000;

impl Opened {
    /// Rows of a span of batches: an epoch, or all of them under `CONTINUOUS`. `None` where unknown;
    /// `u64::MAX` where without end.
    fn span_rows(&self) -> Option<u64> {
        let rows = self.epoch_rows.filter(|_| self.grouping.is_plain())?;
        if !self.clauses.repeat.continuous {
            return Some(rows);
        }
        Some(
            self.epochs
                .map_or(u64::MAX, |epochs| rows.saturating_mul(epochs)),
        )
    }

    /// Batches over all ranks of a span, where known.
    pub fn batches_per_span(&self) -> Option<u64> {
        self.deal.batches(self.span_rows()?)
    }

    /// Steps that every rank takes in an epoch (in the whole run under `CONTINUOUS`), where known.
    pub fn steps_per_span(&self) -> Option<u64> {
        self.batches_per_span()
            .map(|batches| self.deal.steps(batches))
    }

    /// Batches of the whole run, where known and finite.
    pub fn steps(&self) -> Option<u64> {
        Some(self.turns.among(self.rank_steps()?))
    }

    fn rank_steps(&self) -> Option<u64> {
        let spans = if self.clauses.repeat.continuous {
            Some(1)
        } else {
            self.epochs
        };
        let planned = match (spans, self.steps_per_span()) {
            (Some(spans), Some(steps)) if self.epochs.is_some() => {
                let all = spans.saturating_mul(steps);
                Some(all.saturating_sub(self.steps_before(steps)))
            }
            _ => None,
        };
        match (planned, self.limit_batches) {
            (Some(planned), Some(limit)) => Some(planned.min(limit)),
            (planned, limit) => planned.or(limit.filter(|_| self.epochs.is_none())),
        }
    }

    /// Steps that a resumed run has behind it, of which each span has so many. In the span that it goes on
    /// in, what is left is dealt anew.
    fn steps_before(&self, per_span: u64) -> u64 {
        let Some(cursor) = &self.resume else {
            return 0;
        };
        let spans = match self.clauses.repeat.continuous {
            true => 0,
            false => cursor.epoch.saturating_sub(self.first_epoch),
        };
        let batches = self.batches_per_span().unwrap_or(0);
        let left = self.deal.steps(batches.saturating_sub(cursor.batches));
        spans
            .saturating_mul(per_span)
            .saturating_add(per_span.saturating_sub(left))
    }

    /// Steps that every rank takes in the first epoch (in the whole run under `CONTINUOUS`), where packs,
    /// buckets or a mix decide what is a batch: rows are gone through as the run will do, and none is read. `None` where
    /// rows are counted as they come, a random filter decides them, there is no end, or they are too many.
    pub async fn steps_of_first_epoch(&self) -> Option<u64> {
        self.go_through(true).await
    }

    /// Batches of the whole run, where they can be known and are finite.
    pub async fn all_steps(&self) -> Option<u64> {
        if let Some(steps) = self.steps() {
            return Some(steps);
        }
        let steps = self.go_through(false).await?;
        let steps = steps.min(self.limit_batches.unwrap_or(u64::MAX));
        Some(self.turns.among(steps))
    }

    async fn go_through(&self, first_epoch: bool) -> Option<u64> {
        let known = matches!(self.known, Known::Nothing | Known::Fixed(_));
        let continuous = self.clauses.repeat.continuous;
        let endless = self.epochs.is_none() && (continuous || !first_epoch);
        if !known || endless || self.again.is_some() {
            return None;
        }
        let mut sequencer = Sequencer::new(Arc::new(self.clone()), Satisfied::default());
        // No window is begun to be read, and nothing of a cache is touched.
        (sequencer.reading, sequencer.dry) = (Reading::Planned(u64::MAX), Some(MOST_ROWS));
        let mut begun = false;
        while let Some(step) = sequencer.next().await {
            match step {
                Step::Begin(_) if begun && first_epoch && !continuous => break,
                Step::Begin(_) => begun = true,
                // That is for the run to tell.
                Step::Failed { .. } => return None,
                Step::Rows { .. } | Step::Skipped => {}
            }
        }
        Some(sequencer.steps)
    }
}
