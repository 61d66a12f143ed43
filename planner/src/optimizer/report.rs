//! The optimiser's report about its choice of a plan.

use super::always_rules::Applied;
use super::cost::Cost;
use super::saturate::Saturation;
use super::statistics::Statistics;
use super::stored::StoredPoint;

/// Costs, search size and statistics of a choice of a plan.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Cost of the written plan over all epochs.
    pub written: Cost,
    /// Cost of the chosen plan over all epochs.
    pub chosen: Cost,
    /// Number of epochs over which the cost of a plan is summed.
    pub epochs: u64,
    /// True if the chosen plan caches rows.
    pub cached: bool,
    /// Cost of computing one of the cached rows; 0 if the chosen plan caches no rows.
    pub cached_row: Cost,
    /// Estimated mean size of an output row, in bytes; `None` if the plan runs as written.
    pub row_bytes: Option<u64>,
    /// The cache point of the chosen plan, if the cache already held some or all of its rows and
    /// the plan was chosen for that reason.
    pub stored: Option<StoredPoint>,
    /// The rules applied before the search, in order.
    pub before: Vec<Applied>,
    /// The size of the search, whether a limit ended it, and the uses of each rule.
    pub saturation: Saturation,
    /// Statistics of the plan's sources and operators, by which the plan was chosen.
    pub statistics: Statistics,
    /// The reason why the plan runs as written, instead of the plan that the search chose; `None`
    /// if the chosen plan runs.
    pub doubt: Option<String>,
}

impl Report {
    /// Mean cost per epoch of the chosen plan. With a cache, the first epoch costs more than later
    /// epochs.
    pub fn epoch_cost(&self) -> Cost {
        self.chosen / Cost::from(self.epochs.max(1))
    }
}
