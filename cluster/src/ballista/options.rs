//! Options of a client.

use forebay_runtime::cache::Compression;

use super::Security;

/// Options of a [`BallistaEngine`](super::BallistaEngine).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Address of the scheduler, as host and port.
    pub scheduler: String,
    /// Access to the cluster.
    pub security: Security,
    /// Compression of results on their way from the workers.
    pub compression: Compression,
    /// Bytes of the result of one lease, not compressed. A larger one is refused while it arrives.
    pub max_result: usize,
}

impl EngineOptions {
    /// Returns the options of a client of the scheduler at `scheduler`.
    pub fn new(scheduler: impl Into<String>) -> Self {
        Self {
            scheduler: scheduler.into(),
            security: Security::default(),
            compression: Compression::None,
            max_result: i32::MAX as usize,
        }
    }
}
