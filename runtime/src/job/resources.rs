//! The resources of a job: threads and memory.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use forebay_planner::compile::Compiled;
use forebay_udfs::decode_scope::DecodeScope;
use forebay_udfs::room::DecodeRoom;
use forebay_udfs::seek_index_store::{SeekIndexAccess, SeekIndexStore};

use super::JobConfig;
use crate::channel::ChannelRoom;
use crate::error::{Error, Result};
use crate::memory::window_memory;
use crate::pool::{ComputePool, threads};
use crate::process_wide::ProcessWide;
use crate::segment::Env;
use crate::stage::SpillSpace;

/// Approximate output size of a segment, in bytes.
const SEGMENT_BYTES: u64 = 16 << 20;
/// Number of segments that must fit into the memory limit together. With a small limit, segments
/// are smaller than [`SEGMENT_BYTES`].
const SEGMENTS_IN_MEMORY: u64 = 64;
/// Divisor of the memory limit: seek indexes may take a sixteenth beside it. Those of a million photos of
/// ImageNet take 2 GB.
const INDEX_DIVISOR: u64 = 16;

/// Memory for the batches that are read ahead while windows are staged, in bytes. Splits are staged one
/// after the other, so without it, all threads but one would wait for the split that is next.
const AHEAD_BYTES: u64 = 32 << 20;
/// Divisor of the memory limit: batches that are read ahead may take a sixteenth of it.
const AHEAD_DIVISOR: u64 = 16;

/// The seek indexes of this process.
static INDEXES: ProcessWide<SeekIndexStore> = ProcessWide::new();

/// Creates the threads and memory pools of a job. The cache is set later.
pub(super) fn environment(config: &JobConfig, compiled: &Compiled) -> Result<Env> {
    let memory = config.memory();
    // Under the default limit, an image waits until enough memory is free. Under a limit that the
    // user set, an image that alone exceeds the limit also fails.
    let room = Arc::new(DecodeRoom::new(memory, config.memory_limit.is_some()));
    let indexes = if compiled.uses_seek_indexes() {
        let store = INDEXES.get_or_try_init(|| Ok::<_, Error>(SeekIndexStore::default()))?;
        store.map(|store| SeekIndexAccess::new(store, memory / INDEX_DIVISOR, config.is_repeated))
    } else {
        None
    };
    let decoding = DecodeScope {
        room: Arc::clone(&room),
        indexes,
    };
    Ok(Env {
        pool: ComputePool::open(config.threads, decoding)?,
        room,
        ahead: ChannelRoom::new(AHEAD_BYTES.min(memory / AHEAD_DIVISOR)),
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
