//! What is known of stored rows before a run begins: counts, for ranks to take equal steps and for arms to be
//! drawn.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use datafusion::common::Result as EngineResult;
use forebay_planner::compile::Compiled;
use forebay_planner::rows::definition::plan_text;
use forebay_planner::rows::membership::membership;

use super::arm::PassName;
use super::facts::Facts;
use super::shares::Shares;
use super::{Only, Opened};
use crate::error::{Error, Result};
use crate::job::Job;

/// Passes whose facts are kept, where draws decide them.
const KEPT: usize = 4;
/// Shares for each rank: more than one, so that a slow rank holds the others up by less than its whole share.
const SHARES_PER_RANK: u64 = 4;

/// The facts of some passes, the latest first.
type Kept = VecDeque<(PassName, Arc<Facts>)>;

/// Where the facts of stored rows come from.
#[derive(Debug, Clone)]
pub(super) enum Known {
    /// Each stored row gives one row, and nothing else is to be known of it.
    Nothing,
    /// They are the same in every epoch.
    Fixed(Arc<Facts>),
    /// Draws decide, so they are counted pass by pass. The last few are kept.
    Passes(Arc<Mutex<Kept>>),
    /// Rows are counted as they come. Those that the arms of a MIX give are known, where a filter decides them.
    AsTheyCome(Option<Arc<Facts>>),
}

/// Where ranks count together, and what names what they count.
#[derive(Debug, Clone)]
pub(super) struct Together {
    folder: PathBuf,
    name: String,
}

impl Together {
    /// In a folder beside the pipeline's cache directory; `None` without one.
    pub(super) fn of(compiled: &Compiled, job: &Job) -> Result<Option<Self>> {
        let Some(dir) = &compiled.clauses.options.cache_dir else {
            return Ok(None);
        };
        let dir = dir.strip_prefix("file://").unwrap_or(dir);
        if dir.contains("://") || compiled.chosen.mix().is_some() {
            return Ok(None);
        }
        let mut hasher = blake3::Hasher::new();
        let plan = membership(compiled.chosen.clone())?;
        let clauses = &compiled.clauses;
        let groups = format!(
            "{:?} {:?} {:?}",
            clauses.pack, clauses.bucket, clauses.batch
        );
        for part in [&plan_text(&plan)?, &groups] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        // The plan names neither files nor what is in them.
        for data in job.data() {
            let keys = data.file_keys(|scan| scan.occurrence.to_string());
            hasher.update(&(keys.len() as u64).to_le_bytes());
            for key in keys {
                hasher.update(&key.bytes());
            }
        }
        Ok(Some(Self {
            folder: PathBuf::from(format!("{}.counts", dir.trim_end_matches('/'))),
            name: hasher.finalize().to_hex().to_string(),
        }))
    }
}

impl Opened {
    /// Counts what has to be known of rows before they are read.
    pub(super) async fn learn(&mut self) -> Result<()> {
        if let Only::Letters(letters) = &self.only {
            self.again = Some(self.letters(letters)?);
            return Ok(());
        }
        let job = Arc::clone(&self.job);
        let mixes = job.mixed.is_some();
        let drops = job.mixed.as_ref().is_some_and(|mixed| mixed.drops);
        if drops && job.multiplies {
            return Err(Error::Config(
                "a filter above a MIX with unnest in an arm is not supported yet; filter in the arms"
                    .to_owned(),
            ));
        }
        let Some(membership) = &job.membership else {
            if !mixes {
                self.epoch_rows = Some(self.after_skip_and_take(job.snapshot.rows()));
            }
            return Ok(());
        };
        // One rank takes the rows as they come, but for what arms of a MIX leave out: they are drawn by it.
        let decided = mixes && !drops && self.keys.is_none() || mixes && job.multiplies;
        // One batch by itself has its place among all only where all are counted, and so have the batches of runs
        // that take turns, if that can be.
        let whole = !matches!(self.only, Only::Step { .. });
        let uncounted = membership.is_random && self.clauses.freezes();
        let alone = self.deal.world == 1 && whole && (self.turns.of == 1 || uncounted);
        if alone && !decided {
            let arms = job.mixed.as_ref().and_then(|mixed| mixed.arms.as_ref());
            let facts = match arms {
                Some(arms) => Some(Arc::new(Facts::of_arms(&job, arms, &self.env).await?)),
                None => None,
            };
            self.known = Known::AsTheyCome(facts);
            return Ok(());
        }
        if let Some(call) = &membership.volatile {
            return Err(Error::Config(format!(
                "{call} decides which rows there are, and is not declared deterministic: ranks, workers of a loader, \
                 and one batch by itself would count different rows; declare it, or run one rank from its beginning"
            )));
        }
        if uncounted {
            return Err(Error::Config(
                "a random filter and FREEZING RANDOMNESS over several ranks or workers, or for one batch by itself: \
                 which rows there are cannot be counted for both; filter without draws, or run one rank from its \
                 beginning"
                    .to_owned(),
            ));
        }
        if membership.is_random {
            self.known = Known::Passes(Arc::default());
            return Ok(());
        }
        let facts = match self.together.clone() {
            Some(together) => self.count_together(&together).await?,
            None => self.count((self.first_epoch, 0)).await?,
        };
        if !mixes {
            self.epoch_rows = Some(self.after_skip_and_take(facts.total()));
        }
        self.known = Known::Fixed(Arc::new(facts));
        Ok(())
    }

    async fn count(&self, pass: PassName) -> EngineResult<Facts> {
        let key = self.pass_key(pass);
        Facts::of(&self.job, self.keys.as_ref(), key, &self.env).await
    }

    /// Counts with the other ranks, each some of the stored rows.
    async fn count_together(&self, together: &Together) -> EngineResult<Facts> {
        let ranges = self.ranges(self.deal.world * SHARES_PER_RANK);
        let splits: Vec<Range<u32>> = ranges.iter().map(|(splits, _)| splits.clone()).collect();
        let rows: Vec<Range<u64>> = ranges.into_iter().map(|(_, rows)| rows).collect();
        let first = (self.deal.rank as usize * rows.len()) / self.deal.world as usize;
        let count = |range: Range<u64>| {
            let at = rows.iter().position(|of| *of == range).unwrap_or(0);
            let splits = splits[at].clone();
            async move { Facts::share(&self.job, self.keys.as_ref(), splits, range, &self.env).await }
        };
        let buckets = self.keys.as_ref().map(|_| self.grouping.buckets());
        let shares = Shares::new(&together.folder, &together.name, buckets);
        Ok(Facts::of_shares(shares.all(&rows, first, count).await?))
    }

    /// About so many ranges of splits with about as many stored rows each, and the rows.
    fn ranges(&self, shares: u64) -> Vec<(Range<u32>, Range<u64>)> {
        let snapshot = &self.job.snapshot;
        let least = snapshot.rows().div_ceil(shares.max(1)).max(1);
        let mut ranges = Vec::new();
        let (mut split, mut row) = (0, 0);
        for (at, of) in (1..).zip(&snapshot.splits) {
            let end = of.start + of.rows;
            if end - row >= least || at as usize == snapshot.splits.len() {
                ranges.push((split..at, row..end));
                (split, row) = (at, end);
            }
        }
        ranges
    }

    /// What is known of stored rows in a pass; `None` where each gives one row, or they are counted as they
    /// come.
    pub(super) async fn facts(&self, pass: PassName) -> EngineResult<Option<Arc<Facts>>> {
        match &self.known {
            Known::Nothing => Ok(None),
            Known::AsTheyCome(arms) => Ok(arms.clone()),
            Known::Fixed(facts) => Ok(Some(Arc::clone(facts))),
            Known::Passes(of) => {
                let find = |kept: &Kept| {
                    let found = kept.iter().find(|(of, _)| *of == pass);
                    found.map(|(_, facts)| Arc::clone(facts))
                };
                if let Some(facts) = of.lock().ok().and_then(|kept| find(&kept)) {
                    return Ok(Some(facts));
                }
                let facts = Arc::new(self.count(pass).await?);
                if let Ok(mut kept) = of.lock() {
                    kept.truncate(KEPT - 1);
                    kept.push_front((pass, Arc::clone(&facts)));
                }
                Ok(Some(facts))
            }
        }
    }
}
