//! The resources for reading and computing segments.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use forebay_udfs::room::DecodeRoom;

use super::cached_prefix::CacheSetup;
use crate::pool::ComputePool;
use crate::stage::SpillSpace;

/// The resources of a run: threads, memory, and DataFusion's context.
#[derive(Debug, Clone)]
pub(crate) struct Env {
    /// Compute threads.
    pub pool: ComputePool,
    /// Memory for windows; rows that do not fit are spilled.
    pub memory: Arc<dyn MemoryPool>,
    /// Memory for the images that are being decoded.
    pub room: Arc<DecodeRoom>,
    /// File space for spilled rows.
    pub spill: Arc<SpillSpace>,
    /// DataFusion context of fragments.
    pub ctx: Arc<TaskContext>,
    /// Maximum number, each, of segments computed concurrently, segments read ahead of them, and
    /// splits read concurrently.
    pub in_flight: usize,
    /// Approximate output size of a segment, in bytes.
    pub segment_bytes: u64,
    /// Store for the rows of a cache point; `None` if all rows are computed.
    pub cache: Option<CacheSetup>,
}

impl Env {
    /// Returns the memory, in bytes, that ordering a window's rows may take: the memory limit of
    /// the run, which is twice that of the pool for windows.
    pub(crate) fn order_limit(&self) -> u64 {
        match self.memory.memory_limit() {
            MemoryLimit::Finite(bytes) => (bytes as u64).saturating_mul(2),
            _ => u64::MAX,
        }
    }
}
