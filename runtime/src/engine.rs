//! The local engine: runs a compiled pipeline in this process.
//!
//! Segments are computed side by side on a rayon pool and delivered in order; reads go on while
//! earlier segments are computed; a bounded channel holds back what the consumer has not taken. None
//! of this changes the stream.

mod caching;
mod counts;
mod driver;
mod sample;
mod sizing;
mod stop;
mod work;

use std::sync::{Arc, Mutex};

use arrow::datatypes::SchemaRef;
use forebay_planner::clauses::{Clauses, Optimize, Window as Shuffle};
use forebay_planner::compile::Compiled;
use forebay_planner::saved::SavedPlan;
use forebay_udfs::draw::pass_key;
use tokio::sync::{OnceCell, mpsc};
use tokio::task::JoinHandle;

pub use self::caching::machine;
use self::counts::Counts;
use self::driver::Driver;
pub use self::sample::{Prepared, Sample, prepare};
use self::sizing::{environment, size_segments};
use crate::cache::Stores;
use crate::deal::Deal;
use crate::error::{Error, Result};
use crate::job::{Env, Job};
use crate::order::{self, WindowSplits};
use crate::segment::Window;
use crate::tail::{Batch, Feed, RunStats, Tail};

/// Memory that a run may use for windows, segments and batches where no limit is given.
pub const DEFAULT_MEMORY: u64 = 1 << 30;

/// Settings of a run. None of them but rank, world, epochs and seed, and above the exact tier the plan,
/// shows in what it yields.
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
    /// The plan that is pinned: what it was chosen by is what the pipeline is planned by.
    pub plan: Option<Arc<SavedPlan>>,
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
    /// The rows of `SHUFFLE GLOBALLY`, once they are read.
    global: Arc<OnceCell<Arc<Window>>>,
    env: Env,
    segment_rows: u64,
    limit_batches: Option<u64>,
}

impl Opened {
    /// Opens a compiled pipeline, whose cache may be in one of these stores.
    pub async fn new(compiled: &Compiled, config: &RunConfig, stores: &Stores) -> Result<Self> {
        let clauses = &compiled.clauses;
        let world = config.world.max(1);
        if config.rank >= world {
            return Err(Error::Config(format!(
                "rank {} does not exist in a world of {world}; ranks count from 0",
                config.rank
            )));
        }
        let deal = Deal::new(clauses.batch, config.rank, world);
        let mut env = environment(config)?;
        let seed = config.seed.or(clauses.seed).unwrap_or(0);
        let epochs = config.epochs.or(clauses.repeat.epochs.map(|n| n.get()));
        let memory = config.memory_limit.unwrap_or(DEFAULT_MEMORY);
        env.cache = caching::setup(compiled, stores, seed, epochs, memory).await?;
        let job = Arc::new(Job::open(&compiled.chosen, &env).await?);
        let segment_rows = match config.segment_rows {
            Some(rows) => rows.max(1),
            None => size_segments(&job, &deal, &mut env, config)?,
        };
        let mut opened = Self {
            job,
            deal,
            clauses: clauses.clone(),
            seed,
            first_epoch: config.first_epoch,
            epochs,
            epoch_rows: None,
            counts: None,
            global: Arc::default(),
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
                if membership.is_random && clauses.freezes() {
                    return Err(Error::Config(
                        "a random filter and FREEZING RANDOMNESS over several ranks: which rows there are \
                         cannot be counted for both; filter without draws, or run one rank"
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

    /// Whether the run may end before its epochs do.
    pub fn is_limited(&self) -> bool {
        self.limit_batches.is_some()
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

    /// Rows of the cache point that were read from the cache and that were computed, so far; `None` without
    /// a cache.
    pub fn cached(&self) -> Option<(u64, u64)> {
        let cached = self.opened.job.reader.cached.as_ref();
        cached.map(|cached| cached.counts())
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

/// The shuffle of a pipeline as EXPLAIN says it.
pub fn shuffle_text(shuffle: Option<Shuffle>) -> String {
    match shuffle {
        None => "stored order".to_owned(),
        Some(Shuffle::Rows(rows)) => format!("shuffled within windows of at least {rows} rows"),
        Some(Shuffle::Global) => "shuffled globally".to_owned(),
    }
}
