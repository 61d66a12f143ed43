//! The local engine: runs a compiled pipeline in this process.
//!
//! Segments are computed side by side on a rayon pool and delivered in order; reads go on while
//! earlier segments are computed; a bounded channel holds back what the consumer has not taken. None
//! of this changes the stream.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::{BooleanArray, UInt64Array};
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, internal_datafusion_err};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use forebay_planner::clauses::{Clauses, Optimize, Window as Shuffle};
use forebay_planner::compile::Compiled;
use forebay_udfs::draw::pass_key;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::deal::Deal;
use crate::error::{Error, Result};
use crate::fragment::fixed_row_bytes;
use crate::fragment::row_batch::RowBatch;
use crate::job::{Env, Job};
use crate::order::{self, Place, WindowSplits};
use crate::segment::{self, Window};
use crate::tail::{Batch, Feed, RunStats, Tail};

/// Memory that a run may use for windows, segments and batches where no limit is given.
pub const DEFAULT_MEMORY: u64 = 1 << 30;
/// Output bytes of a segment, about.
const SEGMENT_BYTES: u64 = 16 << 20;
/// A batch up to this size is computed as one segment, so that it need not be put together.
const WHOLE_BATCH_BYTES: u64 = 64 << 20;
/// Room for what is not accounted one by one.
const MEMORY_FLOOR: u64 = 16 << 20;

/// Settings of a run. None of them but rank, world, epochs and seed shows in what it yields.
#[derive(Debug, Clone, Default)]
pub struct RunConfig {
    /// First epoch, from 0.
    pub first_epoch: u64,
    /// Number of epochs, instead of the pipeline's.
    pub epochs: Option<u64>,
    /// Seed, instead of the pipeline's.
    pub seed: Option<u64>,
    /// This rank, from 0.
    pub rank: u64,
    /// Number of ranks; 0 stands for 1.
    pub world: u64,
    /// Compute threads; all cores where absent.
    pub threads: Option<usize>,
    /// Bytes; [`DEFAULT_MEMORY`] where absent.
    pub memory_limit: Option<u64>,
    /// Batches after which the run ends.
    pub limit_batches: Option<u64>,
    /// Whether the plan is rewritten, instead of what the pipeline says.
    pub optimize: Option<Optimize>,
    /// Rows of a segment, instead of about 16 MiB of output.
    pub segment_rows: Option<u64>,
    /// Segments run one by one, so that CPU time can be told apart by operator.
    pub analyze: bool,
}

/// A pipeline opened for a run: its data listed, its rows counted where batches depend on it.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The opened pipeline.
    pub job: Arc<Job>,
    /// Batches and ranks.
    pub deal: Deal,
    /// The training clauses.
    pub clauses: Clauses,
    /// The seed in force.
    pub seed: u64,
    /// First epoch.
    pub first_epoch: u64,
    /// Number of epochs; without end where absent.
    pub epochs: Option<u64>,
    /// Rows of each epoch after SKIP and TAKE, over all ranks; absent where the rows are counted as
    /// they come.
    pub epoch_rows: Option<u64>,
    counts: Option<Arc<Counts>>,
    env: Env,
    segment_rows: u64,
    limit_batches: Option<u64>,
}

/// How many rows each stored row gives, added up.
#[derive(Debug)]
struct Counts {
    /// Entry `i` is the number of rows that stored rows `0..i` give.
    before: Vec<u64>,
}

impl Counts {
    async fn of(job: &Arc<Job>, pass: u64, env: &Env) -> Result<Option<Self>> {
        let Some(membership) = &job.membership else {
            return Ok(None);
        };
        let mut before = vec![0; job.snapshot.rows() as usize + 1];
        let mut rows = segment::stored_order(job, &membership.reader, pass, env);
        while let Some(batch) = rows.try_next().await? {
            for &stored in batch.row_ids()?.position.values() {
                before[stored as usize + 1] += 1;
            }
        }
        for i in 1..before.len() {
            before[i] += before[i - 1];
        }
        Ok(Some(Self { before }))
    }

    fn total(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }

    fn within(&self, window: &WindowSplits, job: &Job) -> u64 {
        let splits = window
            .splits
            .iter()
            .map(|&s| &job.snapshot.splits[s as usize]);
        splits
            .map(|s| self.before[(s.start + s.rows) as usize] - self.before[s.start as usize])
            .sum()
    }

    fn of_row(&self, stored: u64) -> u64 {
        self.before[stored as usize + 1] - self.before[stored as usize]
    }
}

impl Opened {
    /// Opens a compiled pipeline.
    pub async fn new(compiled: &Compiled, config: &RunConfig) -> Result<Self> {
        let clauses = compiled.clauses;
        let world = config.world.max(1);
        if config.rank >= world {
            return Err(Error::Config(format!(
                "rank {} does not exist in a world of {world}; ranks count from 0",
                config.rank
            )));
        }
        let deal = Deal::new(clauses.batch, config.rank, world);
        let mut env = environment(config)?;
        let job = Arc::new(Job::open(&compiled.chosen, &env).await?);
        let seed = config.seed.or(clauses.seed).unwrap_or(0);
        let epochs = config.epochs.or(clauses.repeat.epochs.map(|n| n.get()));
        let segment_rows = match config.segment_rows {
            Some(rows) => rows.max(1),
            None => size_segments(&job, &deal, &mut env, config)?,
        };
        let mut opened = Self {
            job,
            deal,
            clauses,
            seed,
            first_epoch: config.first_epoch,
            epochs,
            epoch_rows: None,
            counts: None,
            env,
            segment_rows,
            limit_batches: config.limit_batches,
        };
        match &opened.job.membership {
            None => {
                opened.epoch_rows = Some(opened.after_skip_and_take(opened.job.snapshot.rows()))
            }
            Some(membership) if world > 1 => {
                if membership.is_random && (clauses.repeat.continuous || epochs != Some(1)) {
                    return Err(Error::Config(
                        "a random filter keeps other rows in each epoch, so steps of several ranks \
                         over several epochs cannot be proven equal; run one epoch at a time \
                         (--epochs 1), or filter without draws"
                            .to_owned(),
                    ));
                }
                let pass = pass_key(seed, config.first_epoch);
                let counts = Counts::of(&opened.job, pass, &opened.env).await?;
                opened.epoch_rows = counts
                    .as_ref()
                    .map(|c| opened.after_skip_and_take(c.total()));
                opened.counts = counts.map(Arc::new);
            }
            // One rank takes the rows as they come.
            Some(_) => {}
        }
        Ok(opened)
    }

    fn after_skip_and_take(&self, rows: u64) -> u64 {
        rows.saturating_sub(self.clauses.skip)
            .min(self.clauses.take.unwrap_or(u64::MAX))
    }

    /// Rows of a span of batches: an epoch, or all of them under `CONTINUOUS`. `None` where unknown;
    /// `u64::MAX` where without end.
    fn span_rows(&self) -> Option<u64> {
        let rows = self.epoch_rows?;
        if !self.clauses.repeat.continuous {
            return Some(rows);
        }
        Some(
            self.epochs
                .map_or(u64::MAX, |epochs| rows.saturating_mul(epochs)),
        )
    }

    /// Steps that every rank takes in an epoch (in the whole run under `CONTINUOUS`), where known.
    pub fn steps_per_span(&self) -> Option<u64> {
        self.span_rows().map(|rows| self.deal.steps(rows))
    }

    /// Steps of the whole run, where known and finite.
    pub fn steps(&self) -> Option<u64> {
        let spans = if self.clauses.repeat.continuous {
            Some(1)
        } else {
            self.epochs
        };
        let planned = match (spans, self.steps_per_span()) {
            (Some(spans), Some(steps)) if self.epochs.is_some() => {
                Some(spans.saturating_mul(steps))
            }
            _ => None,
        };
        match (planned, self.limit_batches) {
            (Some(planned), Some(limit)) => Some(planned.min(limit)),
            (planned, limit) => planned.or(limit.filter(|_| self.epochs.is_none())),
        }
    }

    /// The windows of an epoch.
    pub fn windows(&self, epoch: u64) -> Vec<WindowSplits> {
        order::windows(
            &self.job.snapshot,
            self.clauses.shuffle,
            pass_key(self.seed, epoch),
        )
    }

    /// Rows of a segment, and segments that run side by side.
    pub fn segments(&self) -> (u64, usize) {
        (self.segment_rows, self.env.in_flight)
    }

    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(self.tail().schema())
    }

    fn tail(&self) -> Tail {
        let snapshot = Arc::clone(&self.job.snapshot);
        let schema = self.job.reader.fragment.schema();
        Tail::new(schema, snapshot, self.deal, self.clauses.options.on_error)
    }

    fn feed(&self) -> Feed {
        match self.span_rows() {
            Some(rows) => Feed::Planned(rows),
            None => self.counted(),
        }
    }

    fn counted(&self) -> Feed {
        let Clauses { skip, take, .. } = self.clauses;
        Feed::Counted {
            skip,
            take: take.unwrap_or(u64::MAX),
        }
    }

    /// Starts the run. It goes on in the background until it ends or the `Run` is dropped.
    pub fn start(self) -> Run {
        let opened = Arc::new(self);
        let (sender, batches) = mpsc::channel(1);
        let stats = Arc::new(Mutex::new(RunStats::default()));
        let driver = Driver {
            opened: Arc::clone(&opened),
            sender,
            stats: Arc::clone(&stats),
            satisfied: Arc::default(),
        };
        let task = tokio::spawn(driver.run());
        Run {
            opened,
            batches,
            stats,
            task,
        }
    }
}

fn environment(config: &RunConfig) -> Result<Env> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = config.threads.unwrap_or(cores).max(1);
    let memory = config.memory_limit.unwrap_or(DEFAULT_MEMORY);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|i| format!("forebay-compute-{i}"))
        .build()
        .map_err(|e| internal_datafusion_err!("cannot start {threads} compute threads: {e}"))?;
    let in_flight = if config.analyze { 1 } else { threads + 1 };
    Ok(Env {
        pool: Arc::new(pool),
        // Windows have half of the memory; segments and batches the rest.
        memory: Arc::new(GreedyMemoryPool::new((memory / 2) as usize)),
        ctx: Arc::new(TaskContext::default()),
        in_flight,
        segment_bytes: SEGMENT_BYTES.min(memory / 4 / in_flight as u64).max(1),
    })
}

/// Rows of a segment: whole batches where they are small enough.
fn size_segments(job: &Job, deal: &Deal, env: &mut Env, config: &RunConfig) -> Result<u64> {
    let limit = config.memory_limit.unwrap_or(DEFAULT_MEMORY);
    let rows = segment::segment_rows(&job.snapshot, &job.reader, env);
    let batch_rows = deal.full().max(1);
    let row_bytes = fixed_row_bytes(job.reader.fragment.schema());
    let batch_bytes = row_bytes.map_or(0, |bytes| bytes.saturating_mul(batch_rows));
    // One batch being filled, one waiting, one with the consumer.
    let minimum = batch_bytes.saturating_mul(3).saturating_add(MEMORY_FLOOR);
    if config.memory_limit.is_some() && limit < minimum {
        return Err(Error::Memory { limit, minimum });
    }
    if batch_rows <= rows {
        return Ok(rows / batch_rows * batch_rows);
    }
    let whole = WHOLE_BATCH_BYTES.min(limit / 8);
    if row_bytes.is_some() && batch_bytes <= whole {
        env.segment_bytes = batch_bytes;
        // The rows of a segment keep all threads busy; the second one hides its stragglers.
        env.in_flight = env.in_flight.min(2);
        return Ok(batch_rows);
    }
    Ok(rows)
}

/// A run in progress.
#[derive(Debug)]
pub struct Run {
    opened: Arc<Opened>,
    batches: mpsc::Receiver<Result<Batch>>,
    stats: Arc<Mutex<RunStats>>,
    task: JoinHandle<()>,
}

impl Run {
    /// What is run.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// The next batch; `None` at the end. After an error the run has ended.
    pub async fn next(&mut self) -> Option<Result<Batch>> {
        self.batches.recv().await
    }

    /// What was put out so far, and what became of failed rows.
    pub fn stats(&self) -> RunStats {
        self.stats.lock().map(|s| s.clone()).unwrap_or_default()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.task.abort();
    }
}

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
enum Work {
    Begin(u64),
    Segment {
        epoch: u64,
        window: Arc<Window>,
        places: Vec<Place>,
        ordinals: Option<Vec<u64>>,
    },
}

enum Done {
    Begin(u64),
    Rows(RowBatch),
}

struct Driver {
    opened: Arc<Opened>,
    sender: mpsc::Sender<Result<Batch>>,
    stats: Arc<Mutex<RunStats>>,
    /// One more than the last epoch whose TAKE is satisfied.
    satisfied: Arc<AtomicU64>,
}

impl Driver {
    async fn run(self) {
        if let Err(error) = self.drive().await {
            // Nobody listens any more where the receiver is gone.
            let _ = self.sender.send(Err(error)).await;
        }
    }

    async fn drive(&self) -> Result<()> {
        let opened = &self.opened;
        let continuous = opened.clauses.repeat.continuous;
        let mut tail = opened.tail();
        let mut sent = 0;
        let mut epoch_began: Option<u64> = None;
        let mut done = work(Arc::clone(opened), Arc::clone(&self.satisfied))
            .map_ok({
                let opened = Arc::clone(opened);
                move |work| compute(Arc::clone(&opened), work)
            })
            .try_buffered(opened.env.in_flight);
        loop {
            let mut out = Vec::new();
            let item = done.try_next().await;
            let ended = matches!(item, Ok(None));
            let stepped = match item {
                Err(error) => Err(Error::Engine(error)),
                Ok(None) => tail.finish(&mut out),
                Ok(Some(Done::Begin(epoch))) => {
                    let first = epoch_began.is_none();
                    let finished = match (first, continuous) {
                        (false, false) => tail.finish(&mut out),
                        _ => Ok(()),
                    };
                    if first || !continuous {
                        tail.begin(epoch, opened.feed());
                    } else {
                        tail.enter_epoch(epoch);
                        if let Feed::Counted { skip, take } = opened.counted()
                            && opened.span_rows().is_none()
                        {
                            tail.restart_counting(skip, take);
                        }
                    }
                    if !first && opened.epochs.is_none() && tail.stats().rows == 0 && out.is_empty()
                    {
                        return Err(Error::Config(
                            "an epoch has no rows, so REPEAT without end would never yield one"
                                .to_owned(),
                        ));
                    }
                    epoch_began = Some(epoch);
                    finished
                }
                Ok(Some(Done::Rows(rows))) => tail.push(rows, &mut out),
            };
            if tail.is_satisfied()
                && let Some(epoch) = epoch_began
            {
                self.satisfied.store(epoch + 1, Ordering::Relaxed);
            }
            if let Ok(mut stats) = self.stats.lock() {
                stats.clone_from(tail.stats());
            }
            for batch in out {
                if opened.limit_batches.is_some_and(|limit| sent >= limit)
                    || self.sender.send(Ok(batch)).await.is_err()
                {
                    return Ok(());
                }
                sent += 1;
            }
            stepped?;
            if ended || opened.limit_batches.is_some_and(|limit| sent >= limit) {
                return Ok(());
            }
        }
    }
}

type EngineResult<T> = std::result::Result<T, DataFusionError>;

/// The run's work, in order. Windows are read one ahead.
fn work(opened: Arc<Opened>, satisfied: Arc<AtomicU64>) -> BoxStream<'static, EngineResult<Work>> {
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
        segment::stage(&job, &job.reader, window, &opened.env)
            .await
            .map(Arc::new)
    };
    let early = match opened.epoch_rows {
        None => Some(read(&window).await?),
        Some(_) => None,
    };
    let (places, ordinals) = {
        let (opened, window, early) = (Arc::clone(&opened), window.clone(), early.clone());
        // Ordering millions of keys is no work for a thread that serves I/O.
        tokio::task::spawn_blocking(move || {
            let snapshot = &opened.job.snapshot;
            let kept = |split| {
                early
                    .as_ref()
                    .and_then(|staged| staged.kept(snapshot, split))
            };
            let order = order::order(snapshot, &window, opened.clauses.shuffle, pass, kept);
            choose(&opened, epoch, ordinal, order)
        })
        .await
        .map_err(|e| internal_datafusion_err!("ordering a window failed: {e}"))?
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

async fn compute(opened: Arc<Opened>, work: Work) -> EngineResult<Done> {
    let Work::Segment {
        epoch,
        window,
        places,
        ordinals,
    } = work
    else {
        let Work::Begin(epoch) = work else {
            return Err(internal_datafusion_err!(
                "work that is neither a segment nor a mark"
            ));
        };
        return Ok(Done::Begin(epoch));
    };
    let pass = pass_key(opened.seed, epoch);
    let (job, reader) = (Arc::clone(&opened.job), Arc::clone(&opened.job.reader));
    let positions: Vec<u64> = match &ordinals {
        Some(_) => places.iter().map(|p| p.position).collect(),
        None => Vec::new(),
    };
    let rows = segment::run(job, reader, window, places, pass, opened.env.clone()).await?;
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
            let first = positions
                .binary_search(&position)
                .map_or(u64::MAX, |i| ordinals[i]);
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

/// The shuffle of a pipeline as EXPLAIN says it.
pub fn shuffle_text(shuffle: Option<Shuffle>) -> String {
    match shuffle {
        None => "stored order".to_owned(),
        Some(Shuffle::Rows(rows)) => format!("shuffled within windows of at least {rows} rows"),
        Some(Shuffle::Global) => "shuffled globally".to_owned(),
    }
}
