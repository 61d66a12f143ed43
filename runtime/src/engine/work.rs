//! The work of a run, in order: the rows of a segment, what is read for them, what is computed of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::UInt64Array;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, internal_datafusion_err};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::Opened;
use super::arm::{Entered, Handle};
use super::sequencer::Sequencer;
use crate::cursor::Carried;
use crate::fragment::row_batch::RowBatch;
use crate::group::Carry;
use crate::order::{Place, StoredRow};
use crate::origin::Origin;
use crate::segment::Segment;
use crate::tail::PlannedBatch;

/// A piece of the run, in its place among the others: what is to be done of it, or what became of it.
#[derive(Debug)]
pub(super) enum Step<T> {
    /// An epoch begins.
    Begin(u64),
    /// Rows of an epoch, and what becomes of them.
    Rows { epoch: u64, of: T, orders: Orders },
    /// Rows that nobody needs: the epoch's TAKE is satisfied.
    Skipped,
    /// An error that ends the run, unless the epoch's TAKE is satisfied by the rows before it.
    Failed { epoch: u64, error: DataFusionError },
}

/// What becomes of rows.
#[derive(Debug)]
pub(super) enum Orders {
    /// These batches are complete with them.
    Planned(Vec<PlannedBatch>),
    /// They are counted and grouped as they come.
    Counted {
        /// Where they came from.
        origin: Arc<Origin>,
        /// Whether groups are completed before they come, because the horizon was reached.
        flush: bool,
    },
    /// They were carried to here; the last of them come with the groups that they are in.
    Restored(Option<Carry<(usize, Carried)>>),
}

impl<T> Step<T> {
    /// An error that ends the run wherever it comes.
    pub(super) const fn lost(error: DataFusionError) -> Self {
        let epoch = u64::MAX;
        Self::Failed { epoch, error }
    }

    /// Does the next thing with the rows.
    pub(super) async fn then<U, F: Future<Output = Result<U>>>(
        self,
        satisfied: Satisfied,
        next: impl FnOnce(T) -> F,
    ) -> Step<U> {
        match self {
            Self::Begin(epoch) => Step::Begin(epoch),
            Self::Rows {
                epoch,
                orders: Orders::Counted { .. },
                ..
            } if satisfied.has(epoch) => Step::Skipped,
            Self::Rows { epoch, of, orders } => match next(of).await {
                Ok(of) => Step::Rows { epoch, of, orders },
                // Rows that were carried came before any TAKE of this run.
                Err(error) if matches!(orders, Orders::Restored(_)) => Step::lost(error),
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

    pub(super) fn has(&self, epoch: u64) -> bool {
        self.0.load(Ordering::Relaxed) > epoch
    }
}

/// A row to be computed, in a window of the sequencer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Picked {
    pub(super) row: StoredRow,
    /// Which of the rows that it gives.
    pub(super) nth: u32,
    /// Number of the window.
    pub(super) window: u32,
}

/// The rows of a segment, to be read.
#[derive(Debug)]
pub(super) struct Work {
    windows: Vec<Arc<Handle>>,
    places: Vec<Place>,
    /// By place: which of its rows are wanted. All of them, where absent.
    wanted: Option<Vec<Range<u32>>>,
    /// Whether these are children of `unnest`, rather than numbers of the rows that are left of them.
    by_child: bool,
    /// How many rows come of it, where that is known.
    planned: Option<usize>,
}

/// A segment that was read.
#[derive(Debug)]
pub(super) struct Ready {
    /// Absent where there are no rows.
    segment: Option<Segment>,
    wanted: Option<Vec<(u64, Range<u32>)>>,
    by_child: bool,
    planned: Option<usize>,
}

/// Work that is being gathered.
#[derive(Debug)]
pub(super) struct Building {
    windows: BTreeMap<u32, Arc<Handle>>,
    places: Vec<Place>,
    wanted: Option<Vec<Range<u32>>>,
    /// The row that came last, where one may give several.
    last: Option<Picked>,
    /// Number of the window that the last row belongs to, and the key of its pass.
    window: Option<(u32, u64)>,
    /// Number of the next place in the run.
    position: u64,
    pub(super) planned: Vec<PlannedBatch>,
    rows: usize,
    by_child: bool,
}

impl Building {
    /// Work of which rows are chosen by their numbers in `unnest`.
    pub(super) fn by_child(opened: &Opened) -> Self {
        Self {
            by_child: true,
            ..Self::new(opened)
        }
    }

    pub(super) fn new(opened: &Opened) -> Self {
        Self {
            windows: BTreeMap::new(),
            places: Vec::new(),
            wanted: opened.job.multiplies.then(Vec::new),
            last: None,
            window: None,
            position: 0,
            planned: Vec::new(),
            rows: 0,
            by_child: false,
        }
    }

    /// Rows in it.
    pub(super) const fn len(&self) -> usize {
        self.rows
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds one of the rows that a stored row gives.
    pub(super) fn push(&mut self, picked: &Picked, windows: &BTreeMap<u32, Entered>) -> Result<()> {
        self.push_range(picked, picked.nth..picked.nth.saturating_add(1), windows)
    }

    /// Adds one of the rows that a stored row gives, though it follows another one of it.
    pub(super) fn push_alone(
        &mut self,
        picked: &Picked,
        windows: &BTreeMap<u32, Entered>,
    ) -> Result<()> {
        self.last = None;
        self.push(picked, windows)
    }

    /// Adds some of the rows that a stored row gives.
    pub(super) fn push_range(
        &mut self,
        picked: &Picked,
        rows: Range<u32>,
        windows: &BTreeMap<u32, Entered>,
    ) -> Result<()> {
        self.rows += 1;
        if let Some(wanted) = &mut self.wanted {
            let follows = self.last.is_some_and(|last| {
                (last.row, last.window, last.nth.wrapping_add(1))
                    == (picked.row, picked.window, picked.nth)
            });
            self.last = Some(*picked);
            match wanted.last_mut() {
                Some(range) if follows => {
                    range.end = rows.end;
                    return Ok(());
                }
                _ => wanted.push(rows),
            }
        }
        let key = self.key_of(picked.window, windows)?;
        self.places.push(picked.row.at(self.position, key));
        self.position += 1;
        Ok(())
    }

    /// Adds rows of a window, each of which gives one row.
    pub(super) fn push_run(
        &mut self,
        rows: &[StoredRow],
        window: u32,
        windows: &BTreeMap<u32, Entered>,
    ) -> Result<()> {
        let key = self.key_of(window, windows)?;
        let places = (self.position..).zip(rows).map(|(at, row)| row.at(at, key));
        self.places.extend(places);
        self.position += rows.len() as u64;
        self.rows += rows.len();
        Ok(())
    }

    /// The key of the pass of a window, from which rows are read.
    fn key_of(&mut self, window: u32, windows: &BTreeMap<u32, Entered>) -> Result<u64> {
        if let Some((last, key)) = self.window
            && last == window
        {
            return Ok(key);
        }
        let Some(entered) = windows.get(&window) else {
            return Err(internal_datafusion_err!("a row has no window"));
        };
        self.windows
            .entry(window)
            .or_insert_with(|| Arc::clone(&entered.handle));
        self.window = Some((window, entered.key));
        Ok(entered.key)
    }

    /// The places in it.
    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Takes the work out.
    pub(super) fn take(&mut self) -> Work {
        self.rows = 0;
        (self.last, self.window) = (None, None);
        Work {
            windows: std::mem::take(&mut self.windows).into_values().collect(),
            places: std::mem::take(&mut self.places),
            wanted: self.wanted.as_mut().map(std::mem::take),
            by_child: self.by_child,
            planned: None,
        }
    }

    /// Takes planned work out, if there is any.
    pub(super) fn cut(&mut self, epoch: u64) -> Option<Step<Work>> {
        if self.is_empty() && self.planned.is_empty() {
            return None;
        }
        let orders = Orders::Planned(std::mem::take(&mut self.planned));
        // Of rows that failed and are run again, some may be gone.
        let planned = (!self.by_child).then_some(self.rows);
        let of = Work {
            planned,
            ..self.take()
        };
        Some(Step::Rows { epoch, of, orders })
    }
}

/// The run's work, in order.
pub(super) fn work(opened: Arc<Opened>, satisfied: Satisfied) -> BoxStream<'static, Step<Work>> {
    if let Some(rows) = &opened.again {
        let epoch = opened.first_epoch;
        return match opened.again(rows) {
            Ok(work) => work,
            Err(error) => stream::iter([Step::Failed { epoch, error }]).boxed(),
        };
    }
    let sequencer = Sequencer::new(opened, satisfied);
    stream::unfold(sequencer, |mut sequencer| async move {
        let step = sequencer.next().await?;
        Some((step, sequencer))
    })
    .boxed()
}

/// Reads a segment.
pub(super) async fn read(opened: Arc<Opened>, work: Work) -> Result<Ready> {
    let Work {
        windows: handles,
        places,
        wanted,
        by_child,
        planned,
    } = work;
    let mut windows = Vec::with_capacity(handles.len());
    for handle in &handles {
        windows.push(handle.get().await?);
    }
    let positions = places.iter().map(|place| place.position);
    let wanted = wanted.map(|wanted| positions.zip(wanted).collect());
    let (job, reader) = (&opened.job, &opened.job.reader);
    let segment = match places.is_empty() {
        true => None,
        false => Some(Segment::read(job, reader, windows, places, &opened.env).await?),
    };
    Ok(Ready {
        segment,
        wanted,
        by_child,
        planned,
    })
}

/// Computes a segment.
///
/// # Errors
/// Fewer or more rows come of it than was planned: what they were planned by is not the data.
pub(super) async fn compute(opened: Arc<Opened>, ready: Ready) -> Result<Vec<RowBatch>> {
    let planned = ready.planned;
    let pieces = computed(opened, ready).await?;
    let rows: usize = pieces.iter().map(RowBatch::len).sum();
    match planned {
        Some(planned) if planned != rows => Err(exec_datafusion_err!(
            "{planned} rows were counted where {} come: a file was changed since it was counted, or a function \
             that is declared deterministic is not; run again, and remove the folder <cache_dir>.counts if there is \
             one",
            rows
        )),
        _ => Ok(pieces),
    }
}

/// The rows of a segment in their order, in one piece or several.
async fn computed(opened: Arc<Opened>, ready: Ready) -> Result<Vec<RowBatch>> {
    let Ready {
        segment,
        wanted,
        by_child,
        ..
    } = ready;
    let (job, reader) = (Arc::clone(&opened.job), Arc::clone(&opened.job.reader));
    let Some(segment) = segment else {
        let no_rows = job.snapshot.row_ids(&[]).to_array()?;
        return Ok(vec![RowBatch::empty(reader.fragment.schema(), no_rows)]);
    };
    let pieces = segment.compute(job, reader, opened.env.clone()).await?;
    let Some(wanted) = wanted else {
        return Ok(pieces);
    };
    let pieces = pieces.into_iter();
    let left = pieces.map(|piece| only_wanted(piece, &wanted, by_child));
    left.collect()
}

/// Of the rows that a stored row gives, those that are wanted: some may be in other batches.
fn only_wanted(rows: RowBatch, wanted: &[(u64, Range<u32>)], by_child: bool) -> Result<RowBatch> {
    let ids = rows.row_ids()?;
    let (mut kept, mut before, mut nth) = (Vec::with_capacity(rows.len()), None, 0);
    for (row, &position) in ids.position.values().iter().enumerate() {
        nth = if before == Some(position) { nth + 1 } else { 0 };
        before = Some(position);
        let nth = if by_child { ids.child.value(row) } else { nth };
        let at = wanted.binary_search_by_key(&position, |(at, _)| *at);
        if at.is_ok_and(|at| wanted[at].1.contains(&nth)) {
            kept.push(row as u64);
        }
    }
    match kept.len() == rows.len() {
        true => Ok(rows),
        false => rows.take(&UInt64Array::from(kept)),
    }
}
