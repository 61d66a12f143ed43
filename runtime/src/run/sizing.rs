//! Sizes of segments.

use super::config::RunConfig;
use crate::error::{Error, Result};
use crate::fragment::width::RowWidth;
use crate::job::OpenJob;
use crate::memory::DEFAULT_MEMORY;
use crate::stream::assignment::RankAssignment;

/// Approximate CPU time of a segment, in picoseconds. The time is short enough that the first batch
/// is ready soon and that threads finish at about the same time. The time is long enough to hide
/// the overhead of a segment (about 50 us).
const SEGMENT_TIME: u128 = 50_000_000_000;
/// Size in bytes of segments of which two for each thread are computed concurrently.
const SMALL_SEGMENT_BYTES: u64 = 4 << 20;
/// Maximum size in bytes of a batch that is computed as one segment in another process. A worker
/// computes few leases at a time, and the client holds their results.
const REMOTE_BATCH_BYTES: u64 = 64 << 20;
/// Number of batches that are in memory at the same time if one is computed at a time: that one, one that
/// waits in the channel, and one that is with the consumer.
const BATCHES_ALIVE: u64 = 3;
/// Memory in bytes that is reserved for allocations that are not accounted individually.
const MEMORY_FLOOR: u64 = 16 << 20;

/// Returns the number of rows in a segment of a run, and the number of segments that are computed
/// concurrently.
///
/// Segments are whole batches, or equal parts of a batch. A segment takes about [`SEGMENT_TIME`] or
/// about [`Env::segment_bytes`](crate::segment::Env::segment_bytes), whichever is reached first,
/// unless `config` states the number of rows.
///
/// The size of a segment depends on the plan, the data, the memory limit and the batch limit, but
/// never on the number of threads. The memory limit also bounds the number of concurrent segments.
///
/// # Errors
/// Fails if the memory limit is too small for three batches.
pub(super) fn segment_size(
    job: &OpenJob,
    ranks: &RankAssignment,
    config: &RunConfig,
) -> Result<(u64, usize)> {
    let threads_and_one = job.env().in_flight;
    if let Some(rows) = config.internals.segment_rows {
        return Ok((rows.max(1), threads_and_one));
    }
    let limit = job.memory_limit.unwrap_or(DEFAULT_MEMORY);
    let batch_rows = ranks.full().unwrap_or(1).max(1);
    let width = RowWidth::of(job.plan.reader.fragment.schema());
    let batch_bytes = width.fixed.saturating_mul(batch_rows);
    let alive = batch_bytes.saturating_mul(BATCHES_ALIVE);
    let minimum = alive.saturating_add(MEMORY_FLOOR);
    if job.memory_limit.is_some() && limit < minimum {
        return Err(Error::Memory { limit, minimum });
    }
    // Decoding may use the memory that is left by batches and staged windows.
    let parts = if job.plan.data.is_staged() { 2 } else { 1 };
    job.env().room.share(parts, minimum);

    let stored = job.plan.data.snapshot.row_bytes();
    let estimated = job.row_bytes.filter(|_| width.ragged);
    let row_bytes = estimated.unwrap_or_else(|| width.estimate(stored));
    let row_bytes = row_bytes.max(stored).max(1);
    let batch_bytes = row_bytes.saturating_mul(batch_rows);
    let by_time = job.row_cost.map_or(u64::MAX, |row| {
        let rows = SEGMENT_TIME / row.max(1);
        u64::try_from(rows).unwrap_or(u64::MAX).max(1)
    });
    let rows = job.segments.rows_by_bytes().min(by_time);
    // Image functions keep all threads busy with the rows of one batch, so a batch is one
    // segment, and its rows are not copied together from several segments.
    let fits = if config.internals.engine.is_some() {
        batch_bytes <= REMOTE_BATCH_BYTES.min(limit / 8)
    } else {
        batch_bytes <= limit / BATCHES_ALIVE
    };
    let is_whole = width.tensors && job.host_functions.is_empty() && fits;
    let rows = if batch_rows <= rows {
        rows / batch_rows * batch_rows
    } else if is_whole {
        batch_rows
    } else {
        batch_rows.div_ceil(batch_rows.div_ceil(rows))
    };
    // A run with a batch limit needs no segments larger than all of its batches.
    let needed = config.limit_batches.map(|batches| {
        let all = batches.max(1).saturating_mul(ranks.batches_per_step());
        all.saturating_mul(ranks.batch.rows().unwrap_or(u64::MAX))
    });
    let rows = rows.min(needed.unwrap_or(u64::MAX)).max(1);
    // Segments being read get a quarter of the memory, and so do segments being computed. At least
    // two segments are computed concurrently, because some threads finish their part of a segment
    // early.
    let room = limit / 4 / rows.saturating_mul(row_bytes).max(1);
    let at_once = usize::try_from(room).unwrap_or(usize::MAX).max(2);
    // Threads go on with other small segments while the run takes the rows of finished ones. A run
    // that measures its operators computes one segment at a time.
    let is_small = rows.saturating_mul(row_bytes) <= SMALL_SEGMENT_BYTES;
    let twice = threads_and_one.saturating_sub(1) * 2;
    let wanted = threads_and_one.max(if is_small { twice } else { 0 });
    let mut in_flight = wanted.min(at_once);
    if is_whole && rows == batch_rows {
        let has_room = batch_bytes <= limit / (BATCHES_ALIVE + 1);
        in_flight = in_flight.min(if has_room { 2 } else { 1 });
    }
    Ok((rows, in_flight))
}
