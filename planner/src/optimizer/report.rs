//! The optimiser's report.

use super::always_rules::Applied;
use super::cost::Cost;
use super::saturate::Saturation;
use super::statistics::Statistics;
use super::stored::StoredPoint;

/// The optimiser's account of how it chose a plan.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Cost of the written plan over all epochs.
    pub written: Cost,
    /// Cost of the chosen plan over all epochs.
    pub chosen: Cost,
    /// Number of epochs that plans were priced over.
    pub epochs: u64,
    /// True if the plan caches rows.
    pub cached: bool,
    /// Cost of computing one cached row; 0 without a cache.
    pub cached_row: Cost,
    /// The cache point, wholly or partly stored, that the plan was chosen for; `None` if its rows
    /// were not stored.
    pub stored: Option<StoredPoint>,
    /// The rules applied before the search, in order.
    pub before: Vec<Applied>,
    /// The size of the search, and what ended it.
    pub saturation: Saturation,
    /// Statistics of the sources and operators.
    pub statistics: Statistics,
    /// The reason why the written plan runs instead of the result of the search; `None` if the
    /// result runs.
    pub doubt: Option<String>,
}

impl Report {
    /// Cost per epoch of the chosen plan; the mean, if a cache makes epochs differ.
    pub fn epoch_cost(&self) -> Cost {
        self.chosen / Cost::from(self.epochs.max(1))
    }
}
