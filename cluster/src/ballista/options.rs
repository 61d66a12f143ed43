//! Options of a client.

use super::Security;

/// Options of a [`BallistaEngine`](super::BallistaEngine).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Address of the scheduler, as host and port.
    pub scheduler: String,
    /// Access to the cluster.
    pub security: Security,
    /// Bytes of the result of one lease. A larger one is refused while it arrives.
    pub max_result: usize,
}

impl EngineOptions {
    /// Returns the options of a client of the scheduler at `scheduler`.
    pub fn new(scheduler: impl Into<String>) -> Self {
        Self {
            scheduler: scheduler.into(),
            security: Security::default(),
            max_result: i32::MAX as usize,
        }
    }
}
