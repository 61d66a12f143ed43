//! The context of segments: the data, a fragment over it, and resources.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryPool;
use forebay_udfs::room::DecodeRoom;

use super::cached_prefix::CacheSetup;
use super::data::StoredData;
use super::reader::FragmentReader;
use crate::fragment::width::RowWidth;
use crate::pool::ComputePool;
use crate::stage::SpillSpace;

/// Maximum number of rows in a segment, however small they are. It is large enough to amortise the
/// overhead of a segment.
const MAX_SEGMENT_ROWS: u64 = 16_384;

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

/// A fragment over stored data, and the resources to compute it.
#[derive(Debug, Clone)]
pub(crate) struct SegmentContext {
    /// The stored rows and their sources.
    pub data: Arc<StoredData>,
    /// The fragment, and what its scans read.
    pub reader: Arc<FragmentReader>,
    /// Threads, memory and cache.
    pub env: Env,
}

impl SegmentContext {
    /// Creates a context that computes `reader` over `data`.
    pub(crate) fn new(data: &Arc<StoredData>, reader: &Arc<FragmentReader>, env: &Env) -> Self {
        Self {
            data: Arc::clone(data),
            reader: Arc::clone(reader),
            env: env.clone(),
        }
    }

    /// Returns the number of rows in a segment whose output has about [`Env::segment_bytes`].
    pub(crate) fn rows_by_bytes(&self) -> u64 {
        let stored = self.data.snapshot.row_bytes();
        let row_bytes = RowWidth::of(self.reader.fragment.schema()).estimate(stored);
        (self.env.segment_bytes / row_bytes.max(stored).max(1)).clamp(1, MAX_SEGMENT_ROWS)
    }
}
