//! Facts that a plan's choice depends on, besides the pipeline itself. With them, another machine
//! repeats the choice.

use serde::{Deserialize, Serialize};

use super::coefficients::Coefficients;
use super::statistics::Statistics;
use super::stored::StoredPoint;

/// The prices, machine, epochs and sizes that a plan was chosen by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanningInputs {
    /// Number of epochs that plans were priced over.
    pub epochs: u64,
    /// Number of computing cores of the machine.
    pub cores: u64,
    /// The cache; `None` if the plan was chosen without a cache.
    pub cache: Option<CacheInputs>,
    /// Sizes and selectivities that the plan was chosen by.
    #[serde(rename = "seen")]
    pub statistics: Statistics,
    /// Prices of one core.
    pub prices: Coefficients,
}

/// The cache that a plan was chosen for, without its location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheInputs {
    /// Capacity of the cache in bytes; `None` if unlimited.
    pub quota: Option<u64>,
    /// Price of keeping a byte in the cache, in picoseconds of one core.
    pub price: u64,
    /// The operator to cache, if the user named it.
    pub at: Option<String>,
    /// Measured write bandwidth of the cache's storage, in bytes per second.
    pub write_bps: Option<u64>,
    /// Measured read bandwidth of the cache's storage, in bytes per second.
    pub read_bps: Option<u64>,
    /// The cache point that was already stored, wholly or partly.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stored: Option<StoredPoint>,
}
