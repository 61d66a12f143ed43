//! Cache of staged splits, which later passes put into other windows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};

use crate::order::row_bitmap::RowBitmap;
use crate::stage::PackedRows;

/// Divisor of the memory for windows: the cache takes a quarter of it, and leaves another quarter free.
const SHARE: usize = 4;
/// Memory of an entry beside its rows, in bytes.
const ENTRY_BYTES: usize = 256;

/// The rows of a split, as a window stages them: those that its filter keeps, with the columns that
/// are read.
#[derive(Debug, Clone)]
pub(super) struct CachedSplit {
    pub(super) rows: SplitValues,
    /// Offsets of the rows from the first row of the split; `None` if they are all its rows.
    pub(super) kept: Option<Arc<RowBitmap>>,
}

/// The values of the rows of a split.
#[derive(Debug, Clone)]
pub(super) enum SplitValues {
    Batches(Vec<RecordBatch>),
    Packed(Arc<PackedRows>),
}

impl CachedSplit {
    fn bytes(&self) -> usize {
        let rows = match &self.rows {
            SplitValues::Batches(batches) => {
                let batches = batches.iter().map(RecordBatch::get_array_memory_size);
                batches.sum()
            }
            SplitValues::Packed(rows) => rows.memory_size(),
        };
        let kept = self.kept.as_ref().map_or(0, |kept| kept.memory_size());
        rows + kept + ENTRY_BYTES
    }
}

/// Cache of the splits that a job stages again: each pass puts them into other windows.
///
/// A pass reads all splits, in an order of its own. So a split that is kept for good serves later
/// passes better than one that replaces another. Windows come first: a cache takes no memory from the
/// second half of the pool, which the caches of several jobs may share, and when the pool is nearly full,
/// the cache of the job that needs memory gives up its rows and keeps no others.
#[derive(Debug)]
pub(crate) struct SplitCache {
    pool: Arc<dyn MemoryPool>,
    /// Memory for windows, of which the cache may take a part.
    memory: usize,
    reservation: MemoryReservation,
    splits: Mutex<HashMap<u32, CachedSplit>>,
    is_closed: AtomicBool,
}

impl SplitCache {
    /// Creates a cache that takes its memory from `pool`, the memory for windows.
    pub(crate) fn new(pool: &Arc<dyn MemoryPool>) -> Self {
        let memory = match pool.memory_limit() {
            MemoryLimit::Finite(limit) => limit,
            _ => usize::MAX,
        };
        Self {
            memory,
            reservation: MemoryConsumer::new("splits of later windows").register(pool),
            pool: Arc::clone(pool),
            splits: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Returns the rows of `split`, an index into the snapshot's splits, if they are kept.
    pub(super) fn get(&self, split: u32) -> Option<CachedSplit> {
        self.lock().get(&split).cloned()
    }

    /// Returns the number of bytes that further rows may take.
    fn room(&self) -> usize {
        if self.is_closed.load(Ordering::Relaxed) {
            return 0;
        }
        let own = (self.memory / SHARE).saturating_sub(self.reservation.size());
        own.min((self.memory / 2).saturating_sub(self.pool.reserved()))
    }

    /// Keeps the rows of `split` if there is room for them.
    pub(super) fn keep(&self, split: u32, rows: CachedSplit) {
        let bytes = rows.bytes();
        let mut splits = self.lock();
        if bytes <= self.room()
            && !splits.contains_key(&split)
            && self.reservation.try_grow(bytes).is_ok()
        {
            splits.insert(split, rows);
        }
    }

    /// Gives up all rows, for good, if windows that take `more` bytes would leave less than a quarter
    /// of the memory free.
    pub(super) fn close_if_full(&self, more: usize) {
        let taken = self.pool.reserved().saturating_add(more);
        let is_full = taken > self.memory - self.memory / SHARE;
        if is_full && !self.is_closed.swap(true, Ordering::Relaxed) {
            let mut splits = self.lock();
            splits.clear();
            self.reservation.free();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, CachedSplit>> {
        self.splits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use forebay_planner::optimizer::coefficients::KEPT_BYTES;

    use super::*;
    use crate::memory::window_memory;
    use crate::stage::{RowStage, SpillSpace};

    fn rows(n: i64) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..n));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    fn split(n: i64) -> CachedSplit {
        CachedSplit {
            rows: SplitValues::Batches(vec![rows(n)]),
            kept: None,
        }
    }

    /// A cache that may take 16 KiB.
    fn cache() -> (Arc<dyn MemoryPool>, Arc<SplitCache>) {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(64 << 10));
        let cache = Arc::new(SplitCache::new(&pool));
        (pool, cache)
    }

    #[test]
    fn splits_are_kept_while_there_is_room() {
        let (pool, cache) = cache();
        for (number, rows) in [(7, 1000), (8, 1000), (9, 100)] {
            cache.keep(number, split(rows));
        }
        let kept = [7, 8, 9].map(|number| cache.get(number).is_some());
        assert_eq!(kept, [true, false, true]);
        assert!((8800..16 << 10).contains(&pool.reserved()));
    }

    #[test]
    fn packed_rows_take_room() {
        let (pool, cache) = cache();
        let columns = ["a", "b"].map(|name| (name, Arc::clone(rows(1000).column(0))));
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut stage = RowStage::new(batch.schema(), &pool, Arc::new(SpillSpace::default()));
        stage.push(batch).unwrap();
        let (packed, _) = stage.pack(0).unwrap();
        drop(stage);
        let split = CachedSplit {
            rows: SplitValues::Packed(packed),
            kept: None,
        };
        cache.keep(7, split.clone());
        assert_eq!(pool.reserved(), 16_000 + ENTRY_BYTES);
        cache.keep(8, split);
        assert!(cache.get(7).is_some() && cache.get(8).is_none());
    }

    #[test]
    fn the_optimiser_knows_the_memory_for_splits() {
        let cache = SplitCache::new(&window_memory(None));
        assert_eq!((cache.memory / SHARE) as u64, KEPT_BYTES);
    }

    #[test]
    fn windows_take_the_memory_of_splits() {
        let (pool, cache) = cache();
        cache.keep(7, split(1000));
        let window = MemoryConsumer::new("a window").register(&pool);
        window.grow(30 << 10);
        // The second half of the memory is for windows alone.
        cache.keep(8, split(1));
        assert!(cache.get(8).is_none());
        cache.close_if_full(8 << 10);
        assert!(cache.get(7).is_some());
        cache.close_if_full(12 << 10);
        assert!(cache.get(7).is_none());
        assert_eq!(pool.reserved(), 30 << 10);
        drop(window);
        cache.keep(7, split(1));
        assert!(cache.get(7).is_none());
    }
}
