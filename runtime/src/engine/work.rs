//! The work of a run, in order: windows, the rows of them that this rank computes, segments.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{BooleanArray, UInt64Array};
use datafusion::common::DataFusionError;
use forebay_planner::clauses::Window as Shuffle;
use forebay_udfs::draw::pass_key;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

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

/// A piece of the run, in its place among the others: what is to be done of it, or what became of it.
pub(super) enum Step<T> {
    /// An epoch begins.
    Begin(u64),
    /// Rows of an epoch.
    Rows {
        /// The epoch.
        epoch: u64,
        /// Its rows.
        of: T,
    },
    /// Rows that nobody needs: the epoch's TAKE is satisfied.
    Skipped,
    /// An error that ends the run, unless the epoch's TAKE is satisfied by the rows before it.
    Failed { epoch: u64, error: DataFusionError },
}

impl<T> Step<T> {
    /// A broken invariant, which ends the run wherever it comes.
    pub(super) const fn lost(error: DataFusionError) -> Self {
        let epoch = u64::MAX;
        Self::Failed { epoch, error }
    }

    /// Does the next thing with the rows.
    pub(super) async fn then<U, F: Future<Output = EngineResult<U>>>(
        self,
        satisfied: Satisfied,
        next: impl FnOnce(T) -> F,
    ) -> Step<U> {
        match self {
            Self::Begin(epoch) => Step::Begin(epoch),
            Self::Rows { epoch, .. } if satisfied.has(epoch) => Step::Skipped,
            Self::Rows { epoch, of } => match next(of).await {
                Ok(of) => Step::Rows { epoch, of },
                Err(error) => Step::Failed { epoch, error },
            },
            Self::Skipped => Step::Skipped,
            Self::Failed { epoch, error } => Step::Failed { epoch, error },
        }
    }
}

/// Which epochs need no more rows, because their TAKE has all of its own. A hint for what runs ahead:
/// the driver alone decides, in the order of the stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Satisfied(Arc<AtomicU64>);

impl Satisfied {
    /// Marks an epoch and those before it.
    pub(super) fn mark(&self, epoch: u64) {
        self.0.store(epoch + 1, Ordering::Relaxed);
    }

    fn has(&self, epoch: u64) -> bool {
        self.0.load(Ordering::Relaxed) > epoch
    }
}

/// The rows of a segment, to be read.
pub(super) struct Work {
    window: Arc<Window>,
    places: Vec<Place>,
    ordinals: Option<Vec<u64>>,
    epoch: u64,
}

/// A segment that was read.
pub(super) struct Ready {
    segment: Segment,
    /// Position and ordinal of each stored row, where a stored row may give several rows.
    ordinals: Option<Vec<(u64, u64)>>,
    epoch: u64,
}

pub(super) type EngineResult<T> = datafusion::common::Result<T>;

/// The run's work, in order. Windows are read one ahead.
pub(super) fn work(opened: Arc<Opened>, satisfied: Satisfied) -> BoxStream<'static, Step<Work>> {
    units(Arc::clone(&opened))
        .flat_map(|unit| {
            let begin = unit.begins.then_some((unit.epoch, None));
            stream::iter(begin.into_iter().chain([(unit.epoch, Some(unit))]))
        })
        .map(move |(epoch, unit)| {
            let (opened, satisfied) = (Arc::clone(&opened), satisfied.clone());
            async move {
                let Some(unit) = unit else {
                    return stream::iter(vec![Step::Begin(epoch)]);
                };
                // What an epoch computes is there to be read in the next.
                if let Some(cached) = &opened.job.reader.cached {
                    cached.epoch_begun(epoch).await;
                }
                let steps = match prepare(opened, unit, satisfied).await {
                    Ok(works) => {
                        let rows = |of| Step::Rows { epoch, of };
                        works.into_iter().map(rows).collect()
                    }
                    Err(error) => vec![Step::Failed { epoch, error }],
                };
                stream::iter(steps)
            }
        })
        .buffered(2)
        .flatten()
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
async fn prepare(opened: Arc<Opened>, unit: Unit, satisfied: Satisfied) -> EngineResult<Vec<Work>> {
    let Unit {
        epoch,
        window,
        ordinal,
        ..
    } = unit;
    let mut works = Vec::new();
    if satisfied.has(epoch) {
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
        works.push(Work {
            window: Arc::clone(&staged),
            places: places[start..end].to_vec(),
            ordinals: ordinals.as_ref().map(|o| o[start..end].to_vec()),
            epoch,
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
pub(super) async fn read(opened: Arc<Opened>, work: Work) -> EngineResult<Ready> {
    let Work {
        window,
        places,
        ordinals,
        epoch,
    } = work;
    let pass = pass_key(opened.seed, epoch);
    let positions = places.iter().map(|p| p.position);
    let ordinals = ordinals.map(|ordinals| positions.zip(ordinals).collect());
    let (job, reader) = (&opened.job, &opened.job.reader);
    let segment = Segment::read(job, reader, window, places, pass, &opened.env).await?;
    Ok(Ready {
        segment,
        ordinals,
        epoch,
    })
}

/// Computes a segment.
pub(super) async fn compute(opened: Arc<Opened>, ready: Ready) -> EngineResult<RowBatch> {
    let Ready {
        segment,
        ordinals,
        epoch,
    } = ready;
    let (job, reader) = (Arc::clone(&opened.job), Arc::clone(&opened.job.reader));
    let rows = segment.compute(job, reader, opened.env.clone()).await?;
    let (Some(ordinals), Some(epoch_rows)) = (ordinals, opened.epoch_rows) else {
        return Ok(rows);
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
    rows.take(&kept)
}
