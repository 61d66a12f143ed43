//! The context of segments: the data, a fragment over it, and resources.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use forebay_planner::clauses::ShuffleWindow as Shuffle;

use super::data::StoredData;
use super::env::Env;
use super::reader::FragmentReader;
use super::window::Window;
use crate::fragment::width::RowWidth;
use crate::order::{self, ORDER_BYTES, StoredRow, WindowSplits};

/// Maximum number of rows in a segment, however small they are. It is large enough to amortise the
/// overhead of a segment.
const MAX_SEGMENT_ROWS: u64 = 16_384;

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

    /// Orders the rows of a window for the pass with this key. Rows that pruning removed from `staged` are left out.
    ///
    /// # Errors
    /// Fails if there are more rows than the memory limit can order.
    pub(crate) async fn order(
        &self,
        splits: WindowSplits,
        shuffle: Option<Shuffle>,
        key: u64,
        staged: Option<Arc<Window>>,
    ) -> Result<Vec<StoredRow>> {
        let limit = self.env.order_limit();
        let consumer = MemoryConsumer::new("order of a window").register(&self.env.memory);
        let data = Arc::clone(&self.data);
        // Sorting millions of keys would block a thread that serves I/O.
        let ordered = self.env.pool.run(move || {
            let snapshot = &data.snapshot;
            let kept = |split| staged.as_ref()?.kept(snapshot, split);
            // The sort keys cannot be spilled, so they are reserved even beyond the limit, which
            // makes staged windows spill.
            let bytes = splits.rows.saturating_mul(ORDER_BYTES).min(limit);
            let keys = consumer;
            keys.grow(usize::try_from(bytes).unwrap_or(usize::MAX));
            order::order(snapshot, &splits, shuffle, key, limit, kept)
        });
        ordered.await
    }
}
