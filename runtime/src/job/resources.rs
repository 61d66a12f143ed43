//! The resources of a job: threads and memory.

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
/// Number of segments that must fit into the memory limit together. With a small limit, segments
/// are smaller than [`SEGMENT_BYTES`].
const SEGMENTS_IN_MEMORY: u64 = 64;

/// Creates the threads and memory pools of a job. The cache is set later.
pub(super) fn environment(config: &JobConfig) -> Result<Env> {
    let memory = config.memory();
    // Under the default limit, an image waits until enough memory is free. Under a limit that the
    // user set, an image that alone exceeds the limit also fails.
    let room = Arc::new(DecodeRoom::new(memory, config.memory_limit.is_some()));
    Ok(Env {
        pool: ComputePool::open(config.threads, Arc::clone(&room))?,
        room,
        spill: Arc::new(SpillSpace::default()),
        // Windows get half of the memory; segments and batches get the other half.
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
