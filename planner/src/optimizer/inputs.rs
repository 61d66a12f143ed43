//! Facts that determine, together with the pipeline, which plan is chosen. With these facts,
//! another machine chooses the same plan.

use serde::{Deserialize, Serialize};

use super::coefficients::Coefficients;
use super::statistics::Statistics;
use super::stored::StoredPoint;

/// The prices, machine, number of epochs and sizes by which a plan was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanningInputs {
    /// Number of epochs over which the cost of a plan is summed.
    pub epochs: u64,
    /// Number of computing cores of the machine.
    pub cores: u64,
    /// The cache; `None` if the plan was chosen without a cache.
    pub cache: Option<CacheInputs>,
    /// Sizes and selectivities by which the plan was chosen.
    #[serde(rename = "seen")]
    pub statistics: Statistics,
    /// Prices of reading, moving and computing rows on one core.
    pub prices: Coefficients,
}

/// The cache for which a plan was chosen, without the cache's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheInputs {
    /// Capacity of the cache in bytes; `None` if unlimited.
    pub quota: Option<u64>,
    /// Price of keeping a byte in the cache, in picoseconds of one core, paid once for all epochs.
    pub price: u64,
    /// The function or column that the user named in CACHE AT; `None` if the optimiser chose the
    /// cache point.
    pub at: Option<String>,
    /// Measured write bandwidth of the cache's storage, in bytes per second.
    pub write_bps: Option<u64>,
    /// Measured read bandwidth of the cache's storage, in bytes per second.
    pub read_bps: Option<u64>,
    /// The cache point of the chosen plan, if the cache held some or all of its rows when the plan
    /// was chosen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stored: Option<StoredPoint>,
}
