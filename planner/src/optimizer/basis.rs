//! What a plan was chosen by, apart from the pipeline itself: with it, another machine makes the same
//! choice again.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::coefficients::Coefficients;
use super::seen::Seen;
use super::stored::StoredPoint;
use super::{Config, Machine, Report};

/// Prices, machine, epochs and sizes that a plan was chosen by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Basis {
    /// Epochs over which plans were priced.
    pub epochs: u64,
    /// Cores that compute.
    pub cores: u64,
    /// The cache; `None` where there was to be none.
    pub cache: Option<CacheBasis>,
    /// Sizes and selectivities.
    pub seen: Seen,
    /// Prices of one core.
    pub prices: Coefficients,
}

/// The cache that a plan was chosen for. Where it lies is no part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheBasis {
    /// Bytes that there was room for; no limit where absent.
    pub quota: Option<u64>,
    /// Picoseconds of one core that keeping a byte was worth.
    pub price: u64,
    /// The one step that it was to be at.
    pub at: Option<String>,
    /// Bytes a second that its storage took, as measured.
    pub write_bps: Option<u64>,
    /// Bytes a second that its storage gave, as measured.
    pub read_bps: Option<u64>,
    /// The part of the rows that it had when the plan was chosen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stored: Option<StoredPoint>,
}

impl Basis {
    /// What a choice was made by: the machine, what its configuration made of the clauses, and what the
    /// optimiser saw, unless it was off.
    pub fn of(machine: &Machine, config: &Config, report: Option<&Report>) -> Self {
        let cache = config.cache.budget.map(|budget| CacheBasis {
            quota: u64::try_from(budget.bytes).ok(),
            price: u64::try_from(budget.price).unwrap_or(u64::MAX),
            at: config.cache.at.clone(),
            write_bps: machine.cache_write,
            read_bps: machine.cache_read,
            stored: report.and_then(|report| report.stored.clone()),
        });
        Self {
            epochs: config.cache.epochs,
            cores: machine.cores,
            cache,
            seen: report.map(|report| report.seen.clone()).unwrap_or_default(),
            prices: Coefficients::clone(&machine.prices),
        }
    }

    /// The machine on which the same choice is made again.
    pub fn machine(self: &Arc<Self>) -> Machine {
        let cache = self.cache.as_ref();
        Machine {
            prices: Arc::new(self.prices.clone()),
            cores: self.cores,
            cache_write: cache.and_then(|cache| cache.write_bps),
            cache_read: cache.and_then(|cache| cache.read_bps),
            stored: cache.and_then(|cache| Some(Arc::new(cache.stored.clone()?) as _)),
            probe: None,
            basis: Some(Arc::clone(self)),
        }
    }
}
