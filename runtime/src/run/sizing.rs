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
/// Size in bytes up to which twice as many segments are computed concurrently.
const SMALL_SEGMENT_BYTES: u64 = 4 << 20;
/// Maximum size in bytes of a batch that is computed as one segment. Such a batch need not be
/// concatenated from several segments.
const WHOLE_BATCH_BYTES: u64 = 64 << 20;
/// Memory for the finished batches that wait for the consumer, in bytes. Each time that the run and the
/// consumer wait for each other takes some ten microseconds, which is as long as a small batch takes.
const WAITING_BYTES: u64 = 1 << 20;
/// Maximum number of finished batches that wait for the consumer.
const MAX_WAITING: u64 = 32;
/// Memory in bytes that is reserved for allocations that are not accounted individually.
const MEMORY_FLOOR: u64 = 16 << 20;

/// Sizes of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunSizes {
    /// Number of rows in a segment.
    pub(super) segment_rows: u64,
    /// Number of segments that are computed concurrently.
    pub(super) in_flight: usize,
    /// Number of finished batches that may wait for the consumer.
    pub(super) waiting: usize,
}

/// Returns the sizes of a run.
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
pub(super) fn run_sizes(
    job: &OpenJob,
    ranks: &RankAssignment,
    config: &RunConfig,
) -> Result<RunSizes> {
    let threads_and_one = job.env().in_flight;
    if let Some(rows) = config.internals.segment_rows {
        return Ok(RunSizes {
            segment_rows: rows.max(1),
            in_flight: threads_and_one,
            waiting: 1,
        });
    }
    let limit = job.memory_limit.unwrap_or(DEFAULT_MEMORY);
    let batch_rows = ranks.full().unwrap_or(1).max(1);
    let width = RowWidth::of(job.plan.reader.fragment.schema());
    let batch_bytes = width.fixed.saturating_mul(batch_rows);
    // One batch is being filled, one waits in the channel, and one is with the consumer.
    let minimum = batch_bytes.saturating_mul(3).saturating_add(MEMORY_FLOOR);
    if job.memory_limit.is_some() && limit < minimum {
        return Err(Error::Memory { limit, minimum });
    }
    // Decoding may use the memory that is left by batches and staged windows.
    let parts = if job.plan.data.is_staged() { 2 } else { 1 };
    job.env().room.share(parts, minimum);

    let stored = job.plan.data.snapshot.row_bytes();
    let row_bytes = width.estimate(stored).max(stored).max(1);
    let batch_bytes = row_bytes.saturating_mul(batch_rows);
    let by_time = job.row_cost.map_or(u64::MAX, |row| {
        let rows = SEGMENT_TIME / row.max(1);
        u64::try_from(rows).unwrap_or(u64::MAX).max(1)
    });
    let rows = job.segments.rows_by_bytes().min(by_time);
    // Image functions keep all threads busy with the rows of one batch, so a batch is one
    // segment and need not be concatenated.
    let is_whole = width.tensors
        && !width.ragged
        && job.host_functions.is_empty()
        && batch_bytes <= WHOLE_BATCH_BYTES.min(limit / 8);
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
    // The threads go on with further small segments while the run takes the rows of finished ones.
    let is_small = rows.saturating_mul(row_bytes) <= SMALL_SEGMENT_BYTES;
    let wanted = threads_and_one * if is_small { 2 } else { 1 };
    let mut in_flight = wanted.min(at_once);
    if is_whole && rows == batch_rows {
        in_flight = in_flight.min(2);
    }
    let waiting = WAITING_BYTES / batch_bytes.max(1);
    Ok(RunSizes {
        segment_rows: rows,
        in_flight,
        waiting: waiting.clamp(1, MAX_WAITING) as usize,
    })
}
