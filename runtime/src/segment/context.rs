//! The context in which segments are read and computed: the data, a fragment over the data, and
//! resources.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryPool;
use forebay_udfs::room::DecodeRoom;

use super::cached_prefix::CacheSetup;
use super::data::StoredData;
use super::reader::FragmentReader;
use super::split_cache::SplitCache;
use crate::channel::ChannelRoom;
use crate::fragment::width::RowWidth;
use crate::pool::ComputePool;
use crate::stage::SpillSpace;

/// Maximum number of rows in a segment, even if the rows are small. A segment of this many rows is
/// large enough to amortise the overhead of a segment.
const MAX_SEGMENT_ROWS: u64 = 16_384;

/// The resources of a run: threads, memory, and DataFusion's context.
#[derive(Debug, Clone)]
pub(crate) struct Env {
    /// Threads that compute segments.
    pub pool: ComputePool,
    /// Memory for staged windows; staged rows that do not fit are spilled.
    pub memory: Arc<dyn MemoryPool>,
    /// Memory for the images that are being decoded.
    pub room: Arc<DecodeRoom>,
    /// Memory for the batches that are read ahead while windows are staged.
    pub ahead: ChannelRoom,
    /// File space for spilled rows.
    pub spill: Arc<SpillSpace>,
    /// DataFusion context of fragments.
    pub ctx: Arc<TaskContext>,
    /// Limit that applies separately to the number of segments computed concurrently, of segments
    /// read ahead, and of splits read concurrently for a window.
    pub in_flight: usize,
    /// Approximate output size of a segment, in bytes.
    pub segment_bytes: u64,
    /// Cache setup for the rows of a cache point; `None` if all rows are computed without a cache.
    pub cache: Option<CacheSetup>,
}

/// A fragment over stored data, and the resources to compute it.
#[derive(Debug, Clone)]
pub(crate) struct SegmentContext {
    /// The stored rows and their sources.
    pub data: Arc<StoredData>,
    /// The fragment, with the columns and predicates of its scans.
    pub reader: Arc<FragmentReader>,
    /// Threads, memory and cache.
    pub env: Env,
    /// True if rows are computed in another order than the stored one.
    pub is_shuffled: bool,
    /// Cache of the splits that later passes stage again; `None` if no pass does.
    pub split_cache: Option<Arc<SplitCache>>,
}

impl SegmentContext {
    /// Creates a context that computes the fragment of `reader` over `data` once, in stored order, with
    /// the resources of `env`.
    pub(crate) fn new(data: &Arc<StoredData>, reader: &Arc<FragmentReader>, env: &Env) -> Self {
        Self {
            data: Arc::clone(data),
            reader: Arc::clone(reader),
            env: env.clone(),
            is_shuffled: false,
            split_cache: None,
        }
    }

    /// Returns the number of rows per segment at which the segment's output has about
    /// [`Env::segment_bytes`].
    pub(crate) fn rows_by_bytes(&self) -> u64 {
        let stored = self.data.snapshot.row_bytes();
        let row_bytes = RowWidth::of(self.reader.fragment.schema()).estimate(stored);
        (self.env.segment_bytes / row_bytes.max(stored).max(1)).clamp(1, MAX_SEGMENT_ROWS)
    }
}
