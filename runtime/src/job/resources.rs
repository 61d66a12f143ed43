//! Threads and memory of a job.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use forebay_udfs::room::DecodeRoom;

use super::JobConfig;
use crate::error::Result;
use crate::memory::window_memory;
use crate::pool::{ComputePool, threads};
use crate::segment::Env;
use crate::stage::SpillSpace;

/// Approximate output size of a segment, in bytes.
const SEGMENT_BYTES: u64 = 16 << 20;
/// Number of segments of the maximum size that fit into the memory limit; a small limit makes
/// segments smaller.
const SEGMENTS_IN_MEMORY: u64 = 64;

/// Creates the threads and memory of a job.
pub(super) fn environment(config: &JobConfig) -> Result<Env> {
    let memory = config.memory();
    // The default limit only makes images wait for memory. A limit set by the user also makes an
    // image fail that exceeds the limit.
    let room = Arc::new(DecodeRoom::new(memory, config.memory_limit.is_some()));
    Ok(Env {
        pool: ComputePool::open(config.threads, Arc::clone(&room))?,
        room,
        spill: Arc::new(SpillSpace::default()),
        // Windows have half of the memory; segments and batches have the rest.
        memory: window_memory(config.memory_limit),
        ctx: Arc::new(TaskContext::default()),
        in_flight: if config.analyze {
            1
        } else {
            threads(config.threads) + 1
        },
        segment_bytes: SEGMENT_BYTES.min(memory / SEGMENTS_IN_MEMORY).max(1),
        cache: None,
    })
}
