//! Memory pools for windows: one for the process, and a child pool of it for each job that sets a
//! limit.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::memory_pool::{
    GreedyMemoryPool, MemoryLimit, MemoryPool, MemoryReservation,
};

use crate::process_wide::ProcessWide;

/// Memory in bytes that a run may use for windows, segments and batches if the run sets no limit.
pub const DEFAULT_MEMORY: u64 = 1 << 30;

/// Pool for the windows of all jobs that set no limit.
static SHARED: ProcessWide<GreedyMemoryPool> = ProcessWide::new();

/// Returns the memory pool for a job's windows: half of the job's limit, or the process's pool if
/// `limit` is `None`.
///
/// The memory of a job with a limit is also counted in the process's pool, but a reservation fails
/// only if it exceeds the job's own limit.
pub(crate) fn window_memory(limit: Option<u64>) -> Arc<dyn MemoryPool> {
    let make = || GreedyMemoryPool::new((DEFAULT_MEMORY / 2) as usize);
    let Ok(shared) = SHARED.get_or_try_init(|| Ok::<_, Infallible>(make()));
    let shared = shared.unwrap_or_else(|| Arc::new(make()));
    match limit {
        None => shared,
        Some(limit) => Arc::new(ChildMemoryPool {
            own: GreedyMemoryPool::new(usize::try_from(limit / 2).unwrap_or(usize::MAX)),
            parent: shared,
        }),
    }
}

/// A memory pool with a separate limit, whose reservations are also counted in a parent pool.
#[derive(Debug)]
struct ChildMemoryPool {
    own: GreedyMemoryPool,
    parent: Arc<GreedyMemoryPool>,
}

impl fmt::Display for ChildMemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.own, self.parent)
    }
}

impl MemoryPool for ChildMemoryPool {
    fn name(&self) -> &str {
        "child"
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.own.grow(reservation, additional);
        self.parent.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.own.shrink(reservation, shrink);
        self.parent.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.own.try_grow(reservation, additional)?;
        self.parent.grow(reservation, additional);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.own.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.own.memory_limit()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::MemoryConsumer;

    use super::*;

    #[test]
    fn a_child_is_accounted_in_its_parent_and_limited_by_itself() {
        let parent = Arc::new(GreedyMemoryPool::new(100));
        let own = GreedyMemoryPool::new(60);
        let child: Arc<dyn MemoryPool> = Arc::new(ChildMemoryPool {
            own,
            parent: Arc::clone(&parent),
        });
        let in_child = MemoryConsumer::new("child").register(&child);
        in_child.try_grow(50).unwrap();
        assert_eq!((child.reserved(), parent.reserved()), (50, 50));
        assert!(in_child.try_grow(20).is_err());
        assert_eq!((child.reserved(), parent.reserved()), (50, 50));

        let shared: Arc<dyn MemoryPool> = Arc::clone(&parent) as _;
        let in_parent = MemoryConsumer::new("parent").register(&shared);
        in_parent.try_grow(50).unwrap();
        assert!(in_parent.try_grow(1).is_err());
        // Reservations that were made directly in the parent do not reduce the child's limit.
        in_child.try_grow(10).unwrap();
        drop(in_child);
        assert_eq!((child.reserved(), parent.reserved()), (0, 50));
    }
}
