//! Sizing: threads, memory, and how large segments are.

use std::num::NonZeroUsize;
use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use forebay_udfs::room::DecodeRoom;

use super::{DEFAULT_MEMORY, RunConfig};
use crate::deal::Deal;
use crate::error::{Error, Result};
use crate::fragment::width::RowWidth;
use crate::job::{Env, Job};
use crate::pool::ComputePool;
use crate::segment;
use crate::snapshot::ScanSource;
use crate::source::Access;
use crate::stage::SpillSpace;

/// Output bytes of a segment, about.
const SEGMENT_BYTES: u64 = 16 << 20;
/// A batch up to this size is computed as one segment, so that it need not be put together.
const WHOLE_BATCH_BYTES: u64 = 64 << 20;
/// Room for what is not accounted one by one.
const MEMORY_FLOOR: u64 = 16 << 20;

/// Threads that compute.
pub(super) fn threads(config: &RunConfig) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    config.threads.unwrap_or(cores).max(1)
}

/// Threads and memory of a run.
pub(super) fn environment(config: &RunConfig) -> Result<Env> {
    let threads = threads(config);
    let memory = config.memory_limit.unwrap_or(DEFAULT_MEMORY);
    // A limit that nobody asked for makes images wait for each other, and refuses none.
    let room = Arc::new(DecodeRoom::new(memory, config.memory_limit.is_some()));
    let in_flight = if config.analyze { 1 } else { threads + 1 };
    Ok(Env {
        pool: ComputePool::new(threads, Arc::clone(&room))?,
        room,
        spill: Arc::new(SpillSpace::default()),
        // Windows have half of the memory; segments and batches the rest.
        memory: Arc::new(GreedyMemoryPool::new((memory / 2) as usize)),
        ctx: Arc::new(TaskContext::default()),
        in_flight,
        // As many segments are read ahead as are computed.
        segment_bytes: SEGMENT_BYTES.min(memory / 8 / in_flight as u64).max(1),
        cache: None,
    })
}

/// Rows of a segment: whole batches where they are small enough.
pub(super) fn size_segments(
    job: &Job,
    deal: &Deal,
    env: &mut Env,
    config: &RunConfig,
) -> Result<u64> {
    let limit = config.memory_limit.unwrap_or(DEFAULT_MEMORY);
    let rows = segment::segment_rows(&job.snapshot, &job.reader, env);
    let batch_rows = deal.full().unwrap_or(1).max(1);
    let width = RowWidth::of(job.reader.fragment.schema());
    let batch_bytes = width.fixed.saturating_mul(batch_rows);
    // One batch being filled, one waiting, one with the consumer.
    let minimum = batch_bytes.saturating_mul(3).saturating_add(MEMORY_FLOOR);
    if config.memory_limit.is_some() && limit < minimum {
        return Err(Error::Memory { limit, minimum });
    }
    // Decoding has what batches leave, and windows of rows that are held.
    let is_held = |scan: &ScanSource| scan.source.access() == Access::Staged;
    let parts = if job.snapshot.scans.iter().any(is_held) {
        2
    } else {
        1
    };
    env.room.share(parts, minimum);
    if batch_rows <= rows {
        return Ok(rows / batch_rows * batch_rows);
    }
    let stored = job.snapshot.row_bytes();
    let row_bytes = width.estimate(stored).max(stored);
    let batch_bytes = row_bytes.saturating_mul(batch_rows);
    // With the two that are computed and the two that are read ahead, half of the memory at most.
    if width.tensors && !width.ragged && batch_bytes <= WHOLE_BATCH_BYTES.min(limit / 8) {
        env.segment_bytes = batch_bytes;
        // The rows of such a segment keep all threads busy; the second one hides its stragglers.
        env.in_flight = env.in_flight.min(2);
        return Ok(batch_rows);
    }
    Ok(rows)
}
