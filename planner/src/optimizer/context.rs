//! The prices, machine, cache and sample rows for which a plan is chosen.

use std::sync::Arc;

use super::coefficients::Coefficients;
use super::inputs::PlanningInputs;
use super::profile::Probe;
use super::stored::CacheContents;

/// The prices, machine, cache and sample rows on which the choice of a plan depends.
#[derive(Debug, Clone)]
pub struct PlanningContext {
    /// Prices of reading, moving and computing rows on one core.
    pub prices: Arc<Coefficients>,
    /// Number of computing cores; 0 counts as one.
    pub cores: u64,
    /// Measured write bandwidth of the cache's storage, in bytes per second.
    pub cache_write: Option<u64>,
    /// Measured read bandwidth of the cache's storage, in bytes per second.
    pub cache_read: Option<u64>,
    /// A lookup of the rows that the cache holds already; `None` if the cache was not inspected.
    pub stored: Option<Arc<dyn CacheContents>>,
    /// Reads sample rows of the pipeline's sources for a profile; `None` to plan without a profile.
    pub probe: Option<Arc<dyn Probe>>,
    /// The facts by which a plan was chosen earlier. If present, the same plan is chosen again, and
    /// no sample rows are read.
    pub inputs: Option<Arc<PlanningInputs>>,
}

impl Default for PlanningContext {
    fn default() -> Self {
        Self {
            prices: Coefficients::declared(),
            cores: 1,
            cache_write: None,
            cache_read: None,
            stored: None,
            probe: None,
            inputs: None,
        }
    }
}

impl PlanningContext {
    /// Creates the context that chooses the same plan as was chosen by the facts in `inputs`.
    pub fn again(inputs: &Arc<PlanningInputs>) -> Self {
        let cache = inputs.cache.as_ref();
        Self {
            prices: Arc::new(inputs.prices.clone()),
            cores: inputs.cores,
            cache_write: cache.and_then(|cache| cache.write_bps),
            cache_read: cache.and_then(|cache| cache.read_bps),
            stored: cache.and_then(|cache| Some(Arc::new(cache.stored.clone()?) as _)),
            probe: None,
            inputs: Some(Arc::clone(inputs)),
        }
    }

    /// Price of reading or writing a cached byte, in picoseconds of one core. The storage moves
    /// `measured` bytes per second; if not measured, a byte takes `declared` picoseconds. This time
    /// is multiplied by the number of cores, since all cores could compute meanwhile.
    pub(super) fn cache_price(&self, measured: Option<u64>, declared: u128) -> u128 {
        let wall = measured.map_or(declared, |bytes| {
            1_000_000_000_000 / u128::from(bytes.max(1))
        });
        wall.saturating_mul(self.cores.max(1).into())
    }
}
