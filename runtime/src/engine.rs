//! The local engine: runs a compiled pipeline in this process.
//!
//! Segments are computed side by side on a rayon pool and delivered in order; reads go on while
//! earlier segments are computed; a bounded channel holds back what the consumer has not taken. None
//! of this changes the stream.

mod arm;
mod caching;
mod counted;
mod counts;
mod driver;
mod facts;
mod known;
mod mixing;
mod only;
mod resumed;
mod sample;
mod sequencer;
mod shares;
mod sizing;
mod span;
mod steps;
mod stop;
mod work;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use arrow::datatypes::SchemaRef;
use forebay_planner::clauses::{
    Clauses, EqualSteps, OnError, Optimize, Relax, Remainder, Window as Shuffle,
};
use forebay_planner::compile::Compiled;
use forebay_planner::limits::{MAX_EPOCH, MAX_THREADS, MAX_WORLD};
use forebay_planner::rows::canonical::clauses_text;
use forebay_planner::rows::mix::Mix;
use forebay_planner::saved::SavedPlan;
use forebay_udfs::draw::pass_key;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::arm::{Entered, Handle, PassName, Reading, pass_epoch};
pub use self::caching::machine;
use self::driver::Driver;
use self::known::{Known, Together};
pub use self::only::Only;
pub use self::sample::{Prepared, Sample, prepare};
use self::sizing::{environment, size_segments};
use crate::cache::Stores;
use crate::cursor::{ArmCursor, Cursor};
pub use crate::deal::Uneven;
use crate::deal::{Deal, Turns};
use crate::error::{Error, Result};
use crate::group::Grouping;
use crate::job::{Env, Job};
use crate::keys::KeyColumns;
use crate::letters::{self, DeadLetter, LetterWriter};
use crate::order::{self, StoredRow, WindowSplits};
use crate::tail::{Batch, Budget, RunStats, Tail, Trial};
use crate::task;
use crate::token::{DataSize, StreamName, Token};

/// Memory that a run may use for windows, segments and batches where no limit is given.
pub const DEFAULT_MEMORY: u64 = 1 << 30;

/// Settings of a run. None of them but rank, world, epochs and seed, what is padded for ranks, and above the exact
/// tier the plan, shows in what it yields.
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
    /// The first of this rank's batches that the run gives, from 0, counted from where it begins or goes on.
    pub turn: u64,
    /// From one batch that the run gives to the next, in this rank's batches; 0 stands for 1. The workers of a
    /// loader take turns like that. Tokens and steps are those of the rank.
    pub turns: u64,
    /// Compute threads; all cores where absent.
    pub threads: Option<usize>,
    /// Bytes; [`DEFAULT_MEMORY`] where absent.
    pub memory_limit: Option<u64>,
    /// Batches of the rank after which the run ends.
    pub limit_batches: Option<u64>,
    /// Whether the plan is rewritten, instead of what the pipeline says.
    pub optimize: Option<Optimize>,
    /// The plan that is pinned: what it was chosen by is what the pipeline is planned by.
    pub plan: Option<Arc<SavedPlan>>,
    /// What of the stream is run.
    pub only: Only,
    /// Where the run goes on, rather than at the beginning of the first epoch.
    pub resume: Option<Arc<Token>>,
    /// Rows of a segment, instead of about 16 MiB of output.
    pub segment_rows: Option<u64>,
    /// Segments run one by one, so that CPU time can be told apart by operator.
    pub analyze: bool,
    /// What ranks get in a step whose rows do not divide by ranks.
    pub uneven: Uneven,
}

impl RunConfig {
    /// Checks the settings against each other and against the limits of their numbers.
    ///
    /// # Errors
    /// A rank that does not exist, a number above its limit.
    pub fn check(&self) -> Result<()> {
        let world = self.world.max(1);
        if self.rank >= world {
            return Err(Error::Config(format!(
                "rank {} does not exist in a world of {world}; ranks count from 0",
                self.rank
            )));
        }
        for (what, found, most) in [
            (
                "threads",
                self.threads.unwrap_or(1) as u64,
                MAX_THREADS as u64,
            ),
            ("world", world, MAX_WORLD),
            ("turns", self.turns, MAX_WORLD),
            ("first_epoch", self.first_epoch, MAX_EPOCH),
        ] {
            if found > most {
                return Err(Error::Config(format!(
                    "{what}: {found} is above the limit of {most}"
                )));
            }
        }
        Ok(())
    }
}

/// A pipeline opened for a run: its data listed, its rows counted where batches depend on it.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The opened pipeline.
    pub job: Arc<Job>,
    /// Batches and ranks.
    pub deal: Deal,
    /// Which of the rank's batches the run gives.
    pub turns: Turns,
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
    /// Names the stream.
    pub name: Arc<StreamName>,
    known: Known,
    together: Option<Together>,
    keys: Option<KeyColumns>,
    grouping: Grouping,
    /// By arm: its splits, in stored order.
    arms: Vec<Vec<u32>>,
    /// By scan of the snapshot: its arm.
    arm_of: Arc<[usize]>,
    /// By arm: the rows of `SHUFFLE GLOBALLY`, once they are read.
    global: Vec<OnceLock<Arc<Handle>>>,
    resume: Option<Cursor>,
    only: Only,
    /// Rows that are run again.
    again: Option<Vec<(StoredRow, DeadLetter)>>,
    /// Functions of the host's, which its users may have made a mistake in.
    host_functions: BTreeSet<String>,
    env: Env,
    segment_rows: u64,
    limit_batches: Option<u64>,
    analyze: bool,
    /// Folder for dead letters.
    letters: Option<PathBuf>,
}

impl Opened {
    /// Opens a compiled pipeline, whose cache may be in one of these stores.
    pub async fn new(compiled: &Compiled, config: &RunConfig, stores: &Stores) -> Result<Self> {
        config.check()?;
        let clauses = &compiled.clauses;
        let world = config.world.max(1);
        let deal = Deal::new(clauses, config.rank, world, config.uneven);
        let turns = Turns {
            first: config.turn,
            of: config.turns.max(1),
        };
        let mut env = environment(config)?;
        let from_token = config.resume.as_ref().map(|token| token.stream.seed);
        let seed = config.seed.or(clauses.seed).or(from_token).unwrap_or(0);
        let epochs = config.epochs.or(clauses.repeat.epochs.map(|n| n.get()));
        let memory = config.memory_limit.unwrap_or(DEFAULT_MEMORY);
        env.cache = caching::setup(compiled, stores, seed, epochs, memory).await?;
        let job = Arc::new(Job::open(&compiled.chosen, &env).await?);
        let letters = letters::folder(clauses.options.dead_letters.as_deref())?;
        if let Some(folder) = &letters {
            let scans = job.data().flat_map(|data| &data.scans);
            for scan in scans {
                letters::check_folder(folder, &*scan.source)?;
            }
        }
        let segment_rows = match config.segment_rows {
            Some(rows) => rows.max(1),
            None => size_segments(&job, &deal, &mut env, config)?,
        };
        let name = Arc::new(stream_name(compiled, &job, seed)?);
        let resume = match &config.resume {
            Some(token) => {
                token.check(&name)?;
                Some(token.cursor.clone())
            }
            None => None,
        };
        let keys = KeyColumns::of(clauses, job.reader.fragment.schema());
        let together = match world {
            1 => None,
            _ => Together::of(compiled, &job)?,
        };
        let (arms, arm_of) = arms(&job);
        let mut opened = Self {
            arm_of,
            global: arms.iter().map(|_| OnceLock::new()).collect(),
            job,
            deal,
            turns,
            clauses: clauses.clone(),
            seed,
            first_epoch: config.first_epoch,
            epochs,
            epoch_rows: None,
            name,
            known: Known::Nothing,
            together,
            keys,
            grouping: Grouping::of(clauses),
            arms,
            resume,
            only: config.only.clone(),
            again: None,
            host_functions: compiled.chosen.host_functions(),
            env,
            segment_rows,
            limit_batches: config.limit_batches,
            analyze: config.analyze,
            letters,
        };
        if let Some(cursor) = &opened.resume {
            opened.check_cursor(cursor)?;
        }
        opened.learn().await?;
        Ok(opened)
    }

    fn mix(&self) -> Option<&Mix> {
        self.job.mixed.as_ref().map(|mixed| &mixed.mix)
    }

    /// Whether the run may end before its epochs do.
    pub fn is_limited(&self) -> bool {
        self.limit_batches.is_some()
    }

    fn after_skip_and_take(&self, rows: u64) -> u64 {
        rows.saturating_sub(self.clauses.skip)
            .min(self.clauses.take.unwrap_or(u64::MAX))
    }

    /// How windows are gone about.
    fn reading(&self) -> Reading {
        match &self.known {
            Known::AsTheyCome(_) => Reading::Counted,
            // Of one batch, nothing before it is read.
            _ if matches!(self.only, Only::Step { .. }) => Reading::Planned(u64::MAX),
            _ if self.deal.world == 1 && self.turns.of == 1 => Reading::Planned(0),
            // So many rows hold a batch for each rank, if filters leave half of them.
            _ => {
                let batch = self.deal.batch.rows().unwrap_or(u64::MAX);
                let batches = self.deal.batches_per_step().saturating_mul(self.turns.of);
                let step = batch.saturating_mul(batches.saturating_mul(2));
                Reading::Planned(step.saturating_mul(2))
            }
        }
    }

    /// Whether batches that are not the run's are computed nevertheless: rows are grouped as they come, or a
    /// batch may come again in the place of the next one.
    fn computes_others(&self) -> bool {
        let pads =
            self.deal.equal_steps == EqualSteps::Pad || self.deal.batch.remainder == Remainder::Pad;
        self.turns.of > 1 && pads || self.reading() == Reading::Counted
    }

    /// What a run has to be given to begin where this one does.
    pub fn token(&self) -> Token {
        let beginning = || Cursor {
            epoch: self.first_epoch,
            arms: vec![ArmCursor::beginning(0); self.arms.len()],
            ..Cursor::default()
        };
        let cursor = self.resume.clone().unwrap_or_else(beginning);
        Token::new(&self.name, &cursor)
    }

    /// The epoch behind the last one; `None` where there is no last one.
    fn last_epoch(&self) -> Option<u64> {
        let epochs = self.epochs?;
        Some(self.first_epoch.saturating_add(epochs))
    }

    /// The windows of an epoch.
    pub fn windows(&self, epoch: u64) -> Vec<WindowSplits> {
        let arms = 0..self.arms.len();
        arms.flat_map(|arm| self.arm_windows(arm, (epoch, 0)))
            .collect()
    }

    /// The windows of a pass over an arm.
    fn arm_windows(&self, arm: usize, pass: PassName) -> Vec<WindowSplits> {
        order::windows(
            &self.job.snapshot,
            self.arms[arm].iter().copied(),
            self.clauses.shuffle,
            self.pass_key(pass),
        )
    }

    /// The key of a pass.
    fn pass_key(&self, pass: PassName) -> u64 {
        pass_key(self.seed, pass_epoch(pass))
    }

    /// The window of a pass that a row belongs to, under a number.
    fn entered(&self, row: StoredRow, pass: PassName, id: u32) -> Option<Entered> {
        let arm = self.arm_of[self.job.snapshot.splits[row.split as usize].scan as usize];
        let windows = self.arm_windows(arm, pass);
        let index = windows.iter().position(|w| w.splits.contains(&row.split))?;
        Some(Entered {
            id,
            index: index as u32,
            pass,
            key: self.pass_key(pass),
            handle: Handle::of(self, arm, &windows[index]),
        })
    }

    /// Rows of a segment, and segments that run side by side.
    pub fn segments(&self) -> (u64, usize) {
        (self.segment_rows, self.env.in_flight)
    }

    /// The schema of the batches.
    ///
    /// # Errors
    /// A column cannot be packed or padded.
    pub fn schema(&self) -> Result<SchemaRef> {
        Ok(Arc::clone(self.tail()?.schema()))
    }

    fn tail(&self) -> Result<Tail> {
        let snapshot = Arc::clone(&self.job.snapshot);
        let schema = self.job.reader.fragment.schema();
        let name = Arc::clone(&self.name);
        let again = self.again.is_some();
        let mut tail = Tail::new(schema, snapshot, name, self.deal, &self.clauses, again)?;
        if let Some(cursor) = &self.resume {
            tail.resume(cursor);
        }
        // All rows of dead letters failed before, and may all fail again.
        tail.budget = self.allowed().filter(|_| !again);
        let is_tried =
            matches!(self.only, Only::All) && self.clauses.options.on_error != OnError::Fail;
        if is_tried {
            let has_all = self.resume.is_none() && self.deal.world == 1 && self.turns.of == 1;
            tail.trial = Trial::of(self.host_functions.clone(), has_all);
        }
        Ok(tail)
    }

    /// Rows of an epoch that may fail, and of how many.
    fn allowed(&self) -> Option<Budget> {
        let sees = match self.computes_others() {
            true => self.deal.world,
            false => self.deal.world.saturating_mul(self.turns.of),
        };
        let rows = self.epoch_rows.map(|rows| rows.div_ceil(sees));
        let budget = self.clauses.options.error_budget?;
        Some(Budget { budget, rows })
    }

    /// Where failed rows are told, if anywhere.
    fn letter_writer(&self) -> Option<LetterWriter> {
        let folder = self.letters.clone()?;
        let looked_at = self.again.is_some() || matches!(self.only, Only::Step { .. });
        if looked_at || self.analyze {
            return None;
        }
        let (job, name) = (Arc::clone(&self.job), Arc::clone(&self.name));
        let keep = self.clauses.options.dead_letter_bytes;
        Some(LetterWriter::new(folder, keep, self.deal.rank, job, name))
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
        let task = task::start(driver.run());
        Run {
            opened,
            batches,
            stats,
            task: Some(task),
        }
    }
}

/// A run in progress.
#[derive(Debug)]
pub struct Run {
    opened: Arc<Opened>,
    batches: mpsc::Receiver<Result<Batch>>,
    stats: Arc<Mutex<RunStats>>,
    /// Moves the batches; absent once its end was seen.
    task: Option<JoinHandle<()>>,
}

impl Run {
    /// What is run.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// The next batch; `None` at the end. After an error the run has ended.
    pub async fn next(&mut self) -> Option<Result<Batch>> {
        if let Some(batch) = self.batches.recv().await {
            return Some(batch);
        }
        // A run that broke down is no stream that ended.
        let ended = self.task.as_mut()?.await;
        self.task = None;
        let why = ended.err()?;
        Some(Err(Error::Engine(task::lost("the run", why))))
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
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// The splits of each arm, and the arm of each scan.
fn arms(job: &Job) -> (Vec<Vec<u32>>, Arc<[usize]>) {
    let snapshot = &job.snapshot;
    let arm_of: Arc<[usize]> = { snapshot.scans.iter() }
        .map(|scan| match &job.mixed {
            None => 0,
            Some(mixed) => {
                let mut arms = mixed.scans.iter();
                arms.position(|scans| scans.contains(&scan.occurrence))
                    .unwrap_or(0)
            }
        })
        .collect();
    let mut arms = vec![Vec::new(); job.mixed.as_ref().map_or(1, |mixed| mixed.scans.len())];
    for (index, split) in snapshot.splits.iter().enumerate() {
        arms[arm_of[split.scan as usize]].push(index as u32);
    }
    (arms, arm_of)
}

/// What names the stream of a pipeline over a snapshot.
fn stream_name(compiled: &Compiled, job: &Job, seed: u64) -> Result<StreamName> {
    let files = || {
        let scans = job.data().flat_map(|data| &data.scans);
        scans.flat_map(|scan| &scan.source.manifest().files)
    };
    let plan_hash = match compiled.clauses.options.relax {
        Relax::Exact => None,
        _ => Some(compiled.plan_hash()?),
    };
    Ok(StreamName {
        semantic_hash: compiled.semantic_hash.to_string(),
        clauses: clauses_text(&compiled.clauses),
        snapshot_hash: job.data_hash(),
        data: DataSize {
            files: files().count() as u64,
            rows: job.data().map(|data| data.rows()).sum(),
            bytes: files().map(|file| file.size).fold(0, u64::saturating_add),
        },
        seed,
        plan_hash,
    })
}

/// The shuffle of a pipeline as EXPLAIN says it.
pub fn shuffle_text(shuffle: Option<Shuffle>) -> String {
    match shuffle {
        None => "stored order".to_owned(),
        Some(Shuffle::Rows(rows)) => format!("shuffled within windows of at least {rows} rows"),
        Some(Shuffle::Global) => "shuffled globally".to_owned(),
    }
}
