//! Staging: reads the splits of a window, and holds or spills their rows.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryLimit;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::context::{Env, SegmentContext};
use super::split_cache::{CachedSplit, SplitValues};
use super::window::{Staged, StagedSplit, Window};
use crate::order::row_bitmap::RowBitmap;
use crate::order::{SnapshotSplit, WindowSplits};
use crate::prefetch::{ahead, prefetched_in};
use crate::record_batch::batch_bytes;
use crate::source::{Access, Scan, StoredRows};
use crate::stage::RowStage;

/// Number of batches that are read ahead in each split, whatever their size.
const BATCHES_AHEAD: usize = 2;

/// Reads the splits of `window`, and holds or spills their rows. Splits of sources with direct
/// access, and splits whose rows are all cached, are left out.
pub(crate) async fn stage(context: &SegmentContext, window: &WindowSplits) -> Result<Window> {
    let SegmentContext { data, reader, .. } = context;
    let snapshot = &data.snapshot;
    let mut parts = Vec::with_capacity(snapshot.scans.len());
    for (scan, (source, read)) in data.sources.iter().zip(&reader.reads).enumerate() {
        if source.access() == Access::Direct || read.projection.is_empty() {
            parts.push(None);
            continue;
        }
        let of_scan = |index: &u32| snapshot.splits[*index as usize].scan == scan as u32;
        let mut wanted: Vec<u32> = window.splits.iter().copied().filter(of_scan).collect();
        if let Some(cached) = reader.cached_below(scan) {
            wanted.retain(|&split| !cached.knows(snapshot, split));
        }
        parts.push(Some(stage_splits(context, scan, wanted).await?));
    }
    Ok(Window { parts })
}

/// Reads the splits `wanted` of scan `scan` concurrently, and stages their rows in the order of
/// `wanted`.
pub(crate) async fn stage_splits(
    context: &SegmentContext,
    scan: usize,
    wanted: Vec<u32>,
) -> Result<Staged> {
    let SegmentContext { reader, env, .. } = context;
    let source = &context.data.sources[scan];
    let schema = Arc::new(source.schema().project(&reader.reads[scan].projection)?);
    let mut stage = RowStage::new(schema, &env.memory, Arc::clone(&env.spill));
    // Rows of a cached prefix are read again only where the store evicted them.
    let split_cache =
        { context.split_cache.as_ref() }.filter(|_| reader.cached_below(scan).is_none());
    let mut splits = Vec::new();
    let begin = {
        let context = context.clone();
        move |index| begin(context.clone(), scan, index)
    };
    let mut reads = pin!(ahead(stream::iter(wanted), env.in_flight, begin, Err));
    while let Some(read) = reads.next().await {
        let (split, read) = read?;
        let mut base = stage.rows();
        let kept = match read {
            SplitRead::Cached(CachedSplit { rows, kept }) => {
                base = stage_cached(context, rows, &mut stage)?;
                kept
            }
            SplitRead::Stored(rows) => {
                let kept = stage_stored(context, scan, split, rows, &mut stage).await?;
                if let Some(cache) = split_cache {
                    let rows;
                    (stage, base, rows) = packed(context, stage, base).await?;
                    if let Some(rows) = rows {
                        let kept = kept.clone();
                        cache.keep(split, CachedSplit { rows, kept });
                    }
                }
                kept
            }
        };
        splits.push(StagedSplit {
            split,
            base,
            kept,
            is_spread: false,
        });
    }
    splits.sort_unstable_by_key(|s| s.split);
    let mut staged = Staged { stage, splits };
    if context.is_shuffled
        && staged.stage.gains_from_join()
        && has_room(env, staged.stage.joined_bytes())
    {
        let snapshot = Arc::clone(&context.data.snapshot);
        let joined = env.pool.run(move || {
            staged.join(&snapshot)?;
            Ok(staged)
        });
        staged = joined.await?;
    }
    Ok(staged)
}

/// The rows of a split that is being staged.
enum SplitRead {
    /// Rows that an earlier pass staged.
    Cached(CachedSplit),
    /// Rows that are read from the source.
    Stored(BoxStream<'static, Result<SplitRows>>),
}

/// Finds the rows of the split with index `index` in the job's cache, or begins to read them.
async fn begin(context: SegmentContext, scan: usize, index: u32) -> Result<(u32, SplitRead)> {
    let SegmentContext {
        data, reader, env, ..
    } = &context;
    let split = data.snapshot.splits[index as usize];
    let (file, of_file) = (
        data.snapshot.file_in_source(split.file) as usize,
        split.split as usize,
    );
    let source = &data.sources[scan];
    let cache = context.split_cache.as_ref();
    if let Some(rows) = cache.and_then(|cache| cache.get(index)) {
        // A changed file is an error, whatever fits into memory.
        source.check_split(file, of_file).await?;
        return Ok((index, SplitRead::Cached(rows)));
    }
    let read = &reader.reads[scan];
    let request = Scan {
        projection: read.projection.clone(),
        prune: read.prune.clone(),
        keep: read.keep.clone(),
    };
    let rows = source.read_split(file, of_file, &request);
    let rows = rows.map(move |stored| split_rows(stored?, &split)).boxed();
    let rows = prefetched_in(rows, BATCHES_AHEAD, &env.ahead, SplitRows::bytes);
    Ok((index, SplitRead::Stored(rows)))
}

/// Stages the rows of a split that the job's cache holds. Returns the number of the first row.
fn stage_cached(context: &SegmentContext, rows: SplitValues, stage: &mut RowStage) -> Result<u64> {
    match rows {
        SplitValues::Batches(batches) => {
            let base = stage.rows();
            for batch in batches {
                push(context, stage, batch)?;
            }
            Ok(base)
        }
        SplitValues::Packed(rows) => {
            make_room(context, stage, rows.memory_size());
            stage.push_packed(&rows)
        }
    }
}

/// Stages `rows`, all rows that are read of the split with index `index`. Returns their offsets, or
/// `None` if they are all rows of the split.
async fn stage_stored(
    context: &SegmentContext,
    scan: usize,
    index: u32,
    mut rows: BoxStream<'static, Result<SplitRows>>,
    stage: &mut RowStage,
) -> Result<Option<Arc<RowBitmap>>> {
    let SegmentContext { data, reader, .. } = context;
    let prefix = reader.cached_below(scan);
    let mut offsets = Vec::new();
    loop {
        let start = Instant::now();
        let Some(read) = rows.next().await else {
            break;
        };
        let read = read?;
        reader.note_reading(start.elapsed(), batch_bytes(&read.batch));
        offsets.extend(read.offsets);
        push(context, stage, read.batch)?;
    }
    let split = data.snapshot.splits[index as usize];
    let dense = offsets.len() as u64 == split.rows && offsets.first() == Some(&0);
    if let (Some(prefix), false) = (prefix, dense) {
        prefix.note_dropped(&data.snapshot, index, &offsets).await;
    }
    Ok((!dense).then(|| Arc::new(RowBitmap::new(offsets))))
}

/// Packs the rows of `stage` from number `base` on, those of a split, if they are taken in random order and can be
/// packed. Returns the stage, the new number of the first row, and the values of the rows, which are `None` if some
/// of them were spilled.
async fn packed(
    context: &SegmentContext,
    mut stage: RowStage,
    base: u64,
) -> Result<(RowStage, u64, Option<SplitValues>)> {
    let batches = stage.batches_from(base).map(<[RecordBatch]>::to_vec);
    let bytes = stage.packed_bytes(base);
    if !context.is_shuffled || !bytes.is_some_and(|bytes| has_room(&context.env, bytes)) {
        return Ok((stage, base, batches.map(SplitValues::Batches)));
    }
    let on_pool = move || {
        let packed = stage.pack(base);
        Ok(match packed {
            Some((rows, base)) => (stage, base, Some(SplitValues::Packed(rows))),
            None => (stage, base, batches.map(SplitValues::Batches)),
        })
    };
    context.env.pool.run(on_pool).await
}

/// Pushes `batch` to `stage`, for which cached splits may give up their memory.
fn push(context: &SegmentContext, stage: &mut RowStage, batch: RecordBatch) -> Result<()> {
    make_room(context, stage, batch.get_array_memory_size());
    stage.push(batch)
}

/// Has cached splits give up their memory if `stage` needs it for `bytes` more bytes.
fn make_room(context: &SegmentContext, stage: &RowStage, bytes: usize) {
    if let Some(cache) = &context.split_cache
        && stage.spilled_rows() == 0
    {
        cache.close_if_full(bytes);
    }
}

/// Rows of a split, as they are staged.
struct SplitRows {
    batch: RecordBatch,
    /// The offset of each row from the first row of the split, ascending.
    offsets: Vec<u32>,
}

impl SplitRows {
    fn bytes(&self) -> u64 {
        batch_bytes(&self.batch) + (self.offsets.len() * size_of::<u32>()) as u64
    }
}

/// Returns true if a copy of rows, which takes `bytes` bytes, leaves half of the memory for windows free, so that
/// no other window is spilled because of the copy.
fn has_room(env: &Env, bytes: usize) -> bool {
    let MemoryLimit::Finite(limit) = env.memory.memory_limit() else {
        return true;
    };
    env.memory.reserved().saturating_add(bytes) <= limit / 2
}

/// Returns the rows of `stored` that belong to `split`.
fn split_rows(stored: StoredRows, split: &SnapshotSplit) -> Result<SplitRows> {
    // Under a LIMIT, the snapshot may contain only some of the split's rows. The numbers of the
    // rows read ascend, so a binary search finds the rows of the snapshot.
    let end = split.first_row + split.rows;
    let from = stored.numbers.partition_point(|&row| row < split.first_row);
    let to = stored.numbers.partition_point(|&row| row < end);
    let numbers = &stored.numbers[from..to];
    Ok(SplitRows {
        offsets: { numbers.iter() }
            .map(|row| (row - split.first_row) as u32)
            .collect(),
        batch: stored.batch.slice(from, to - from),
    })
}
