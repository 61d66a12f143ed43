//! The error budget: the number of rows of an epoch that may fail before the run stops.

use forebay_planner::clauses::ErrorBudget;

use super::failure::Failure;
use crate::error::{Error, Result};

/// Minimum number of rows to which a budget in percent applies if the size of an epoch is unknown.
/// One failed row among the first few rows does not mean that many rows will fail.
const LEAST_ROWS: u64 = 1_000;

/// The error budget of this rank, and the number of rows to which a budget in percent applies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) budget: ErrorBudget,
    /// Number of rows that this rank has in an epoch; `None` if unknown.
    pub(crate) rows: Option<u64>,
}

/// Number of rows of the current epoch so far, including failed ones, and number of failed rows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    epoch: u64,
    seen: u64,
    failed: u64,
}

impl Spent {
    /// Counts `rows` rows of epoch `epoch`, whether they failed or not. Counts from 0 again in a
    /// new epoch.
    pub(super) fn see(&mut self, epoch: u64, rows: u64) {
        if epoch != self.epoch {
            *self = Self {
                epoch,
                ..Self::default()
            };
        }
        self.seen += rows;
    }

    /// Counts the failed row `failure`.
    ///
    /// # Errors
    /// Fails if more rows have failed in the epoch than `budget` allows.
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
