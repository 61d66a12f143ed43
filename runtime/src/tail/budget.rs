//! The error budget: how many rows of an epoch may fail before a run stops.

use forebay_planner::clauses::ErrorBudget;

use super::failure::Failure;
use crate::error::{Error, Result};

/// Rows below which a share is taken of so many, where the number of an epoch's rows is not known: one failed
/// row among the first few is no sign of many.
const LEAST_ROWS: u64 = 1_000;

/// How many rows of this rank may fail in an epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) budget: ErrorBudget,
    /// Rows of this rank in an epoch, where known.
    pub(crate) rows: Option<u64>,
}

/// What was seen and failed of an epoch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    epoch: u64,
    seen: u64,
    failed: u64,
}

impl Spent {
    /// Counts rows of an epoch, failed or not.
    pub(super) fn see(&mut self, epoch: u64, rows: u64) {
        if epoch != self.epoch {
            *self = Self {
                epoch,
                ..Self::default()
            };
        }
        self.seen += rows;
    }

    /// Counts a failed row.
    ///
    /// # Errors
    /// It is one more than may fail.
    pub(super) fn fail(&mut self, budget: &Budget, failure: &Failure) -> Result<()> {
        self.failed += 1;
        let (allowed, of) = match budget.budget {
            ErrorBudget::Rows(rows) => (rows, None),
            ErrorBudget::Millionths(share) => {
                let rows = budget.rows.unwrap_or(self.seen.max(LEAST_ROWS));
                let allowed = u128::from(rows) * u128::from(share) / 1_000_000;
                (allowed as u64, Some(rows))
            }
        };
        if self.failed <= allowed {
            return Ok(());
        }
        Err(Error::Budget {
            failed: self.failed,
            seen: self.seen,
            epoch: self.epoch,
            allowed,
            of,
            last: Box::new(failure.clone()),
        })
    }
}
