//! The work of a run, in order: windows, the rows of them that this rank computes, segments.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{BooleanArray, UInt64Array};
use forebay_planner::clauses::Window as Shuffle;
use forebay_udfs::draw::pass_key;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::Opened;
use crate::fragment::row_batch::RowBatch;
use crate::order::{self, Place, WindowSplits};
use crate::segment::{self, Segment, Window};

/// Some windows' worth of work, in order.
struct Unit {
    epoch: u64,
    /// Whether the unit begins its epoch.
    begins: bool,
    window: WindowSplits,
    /// Ordinal in the epoch, before SKIP, of the window's first row; 0 where rows are not counted.
    ordinal: u64,
}

/// A window's segments, or the mark that an epoch begins.
pub(super) enum Work {
    Begin(u64),
    Segment {
        epoch: u64,
        window: Arc<Window>,
        places: Vec<Place>,
        ordinals: Option<Vec<u64>>,
    },
}

/// Work with the segment's rows read.
pub(super) enum Ready {
    Begin(u64),
    Segment {
        epoch: u64,
        segment: Segment,
        /// Position and ordinal of each stored row, where a stored row may give several rows.
        ordinals: Option<Vec<(u64, u64)>>,
    },
}

/// What became of it.
pub(super) enum Done {
    Begin(u64),
    Rows(RowBatch),
}

pub(super) type EngineResult<T> = datafusion::common::Result<T>;

/// The run's work, in order. Windows are read one ahead.
pub(super) fn work(
    opened: Arc<Opened>,
    satisfied: Arc<AtomicU64>,
) -> BoxStream<'static, EngineResult<Work>> {
    units(Arc::clone(&opened))
        .map(move |unit| prepare(Arc::clone(&opened), unit, Arc::clone(&satisfied)))
        .buffered(2)
        .map_ok(|works| stream::iter(works.into_iter().map(Ok)))
        .try_flatten()
        .boxed()
}

/// The windows of all epochs, in order.
fn units(opened: Arc<Opened>) -> impl futures::Stream<Item = Unit> {
    let last = opened.epochs.map(|n| opened.first_epoch.saturating_add(n));
    let epochs = stream::unfold(opened.first_epoch, move |epoch| async move {
        last.is_none_or(|last| epoch < last)
            .then(|| (epoch, epoch + 1))
    });
    epochs.flat_map(move |epoch| {
        let mut windows = opened.windows(epoch);
        if windows.is_empty() {
            windows.push(WindowSplits {
                splits: Vec::new(),
                rows: 0,
                first_position: 0,
            });
        }
        let mut ordinal = 0;
        let opened = Arc::clone(&opened);
        let units = windows.into_iter().enumerate().map(move |(index, window)| {
            let rows = match &opened.counts {
                Some(counts) => counts.within(&window, &opened.job),
                None => window.rows,
            };
            let unit = Unit {
                epoch,
                begins: index == 0,
                window,
                ordinal,
            };
            ordinal += rows;
            unit
        });
        stream::iter(units)
    })
}

/// Orders the rows of a window, finds those that this rank computes, and reads what they need.
async fn prepare(
    opened: Arc<Opened>,
    unit: Unit,
    satisfied: Arc<AtomicU64>,
) -> EngineResult<Vec<Work>> {
    let Unit {
        epoch,
        begins,
        window,
        ordinal,
    } = unit;
    let mut works = Vec::new();
    if begins {
        works.push(Work::Begin(epoch));
    }
    if satisfied.load(Ordering::Relaxed) > epoch {
        return Ok(works);
    }
    let pass = pass_key(opened.seed, epoch);
    let job = Arc::clone(&opened.job);
    // Where rows are numbered before they are read, only a window with rows of this rank is read;
    // where they are not, what pruning leaves out need not be ordered.
    let read = async |window: &WindowSplits| {
        let staged = async || {
            segment::stage(&job, &job.reader, window, &opened.env)
                .await
                .map(Arc::new)
        };
        match opened.clauses.shuffle {
            // One window of every split: its rows are read once for all epochs.
            Some(Shuffle::Global) => opened.global.get_or_try_init(staged).await.map(Arc::clone),
            _ => staged().await,
        }
    };
    let early = match opened.epoch_rows {
        None => Some(read(&window).await?),
        Some(_) => None,
    };
    let (places, ordinals) = {
        let (opened, window, early) = (Arc::clone(&opened), window.clone(), early.clone());
        // Ordering millions of keys is no work for a thread that serves I/O.
        let pool = opened.env.pool.clone();
        pool.run(move || {
            let snapshot = &opened.job.snapshot;
            let kept = |split| {
                early
                    .as_ref()
                    .and_then(|staged| staged.kept(snapshot, split))
            };
            let order = order::order(snapshot, &window, opened.clauses.shuffle, pass, kept);
            Ok(choose(&opened, epoch, ordinal, order))
        })
        .await?
    };
    if places.is_empty() {
        return Ok(works);
    }
    let staged = match early {
        Some(staged) => staged,
        None => read(&window).await?,
    };
    let rows = opened.segment_rows as usize;
    // The first segment ends where a batch ends, if rows are numbered.
    let lead = match (&ordinals, opened.deal.world) {
        (None, 1) => ordinal.saturating_sub(opened.clauses.skip) as usize % rows,
        _ => 0,
    };
    let mut start = 0;
    while start < places.len() {
        let end = if start == 0 {
            rows - lead
        } else {
            start + rows
        }
        .min(places.len());
        works.push(Work::Segment {
            epoch,
            window: Arc::clone(&staged),
            places: places[start..end].to_vec(),
            ordinals: ordinals.as_ref().map(|o| o[start..end].to_vec()),
        });
        start = end;
    }
    Ok(works)
}

/// The rows of a window that this rank computes, and, where a stored row may give several rows, the
/// ordinal of the first of them.
fn choose(
    opened: &Opened,
    epoch: u64,
    ordinal: u64,
    order: Vec<Place>,
) -> (Vec<Place>, Option<Vec<u64>>) {
    let Some(epoch_rows) = opened.epoch_rows else {
        return (order, None);
    };
    let mut places = Vec::new();
    let mut ordinals = Vec::new();
    let mut at = ordinal;
    for place in order {
        let stored = opened.job.snapshot.stored(&place);
        let rows = opened
            .counts
            .as_ref()
            .map_or(1, |counts| counts.of_row(stored));
        if (at..at + rows).any(|ordinal| is_mine(opened, epoch, epoch_rows, ordinal)) {
            places.push(place);
            ordinals.push(at);
        }
        at += rows;
    }
    (places, opened.job.multiplies.then_some(ordinals))
}

/// Whether this rank takes the row with this ordinal of an epoch, counted before SKIP.
fn is_mine(opened: &Opened, epoch: u64, epoch_rows: u64, ordinal: u64) -> bool {
    let Some(kept) = ordinal
        .checked_sub(opened.clauses.skip)
        .filter(|&o| o < epoch_rows)
    else {
        return false;
    };
    let before = match opened.clauses.repeat.continuous {
        true => (epoch - opened.first_epoch).saturating_mul(epoch_rows),
        false => 0,
    };
    let total = opened.span_rows().unwrap_or(epoch_rows);
    opened
        .deal
        .step_of(before.saturating_add(kept), total)
        .is_some()
}

/// Reads a segment.
pub(super) async fn read(opened: Arc<Opened>, work: EngineResult<Work>) -> EngineResult<Ready> {
    match work? {
        Work::Begin(epoch) => Ok(Ready::Begin(epoch)),
        Work::Segment {
            epoch,
            window,
            places,
            ordinals,
        } => {
            let positions = places.iter().map(|p| p.position);
            let ordinals = ordinals.map(|ordinals| positions.zip(ordinals).collect());
            let pass = pass_key(opened.seed, epoch);
            let (job, reader) = (&opened.job, &opened.job.reader);
            let segment = Segment::read(job, reader, window, places, pass).await?;
            Ok(Ready::Segment {
                epoch,
                segment,
                ordinals,
            })
        }
    }
}

/// Computes a segment.
pub(super) async fn compute(opened: Arc<Opened>, ready: EngineResult<Ready>) -> EngineResult<Done> {
    let (epoch, segment, ordinals) = match ready? {
        Ready::Begin(epoch) => return Ok(Done::Begin(epoch)),
        Ready::Segment {
            epoch,
            segment,
            ordinals,
        } => (epoch, segment, ordinals),
    };
    let (job, reader) = (Arc::clone(&opened.job), Arc::clone(&opened.job.reader));
    let rows = segment.compute(job, reader, opened.env.clone()).await?;
    let (Some(ordinals), Some(epoch_rows)) = (ordinals, opened.epoch_rows) else {
        return Ok(Done::Rows(rows));
    };
    // Of the rows that a stored row gives, some may be another rank's.
    let ids = rows.row_ids()?;
    let mut ordinal = None::<(u64, u64)>;
    let mine: BooleanArray = ids
        .position
        .values()
        .iter()
        .map(|&position| {
            let nth = match ordinal {
                Some((at, nth)) if at == position => nth + 1,
                _ => 0,
            };
            ordinal = Some((position, nth));
            let first = ordinals
                .binary_search_by_key(&position, |&(at, _)| at)
                .map_or(u64::MAX, |i| ordinals[i].1);
            Some(is_mine(
                &opened,
                epoch,
                epoch_rows,
                first.saturating_add(nth),
            ))
        })
        .collect();
    let kept: UInt64Array = (0..rows.len())
        .filter(|&i| mine.value(i))
        .map(|i| i as u64)
        .collect::<Vec<_>>()
        .into();
    Ok(Done::Rows(rows.take(&kept)?))
}
