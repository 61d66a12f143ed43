//! Counting of rows before a run: ranks need the counts to take equal steps, and MIX needs them to draw inputs.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::Result;
use forebay_planner::compile::Compiled;
use forebay_planner::rows::canonical::groups_lines;
use forebay_planner::rows::fingerprint::plan_text;
use forebay_planner::rows::membership::membership;
use tokio::sync::OnceCell;

use super::counts::RowCounts;
use super::shares::Shares;
use crate::group_key::KeyColumns;
use crate::job::open_plan::OpenPlan;
use crate::order::{PassName, Snapshot};
use crate::segment::Env;

/// Maximum number of passes whose counts are kept, if draws decide them; beyond it, the counts of
/// the oldest pass are dropped.
const KEPT: usize = 4;
/// Number of shares per rank. With several, other ranks take over shares of a slow rank.
const SHARES_PER_RANK: u64 = 4;

/// The folder through which ranks share counts, and the name that identifies what they count.
#[derive(Debug, Clone)]
pub(crate) struct SharedCounts {
    folder: PathBuf,
    name: String,
}

impl SharedCounts {
    /// Returns the shared counts of a plan, in a folder beside the pipeline's cache directory;
    /// `None` without a local cache directory.
    pub(crate) fn of(compiled: &Compiled, plan: &OpenPlan) -> Result<Option<Self>> {
        let Some(dir) = &compiled.clauses.options.cache_dir else {
            return Ok(None);
        };
        let dir = dir.strip_prefix("file://").unwrap_or(dir);
        if dir.contains("://") || compiled.chosen.mix().is_some() {
            return Ok(None);
        }
        let mut hasher = blake3::Hasher::new();
        let decides = membership(compiled.chosen.clone())?;
        let groups = groups_lines(&compiled.clauses).join("\n");
        for part in [&plan_text(&decides)?, &groups] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        // The text of the plan names neither the files nor their contents.
        for data in plan.all_data() {
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

/// Counts the rows that stored rows give, and keeps the counts for later runs of the job.
#[derive(Debug)]
pub(crate) struct RowCounter {
    plan: Arc<OpenPlan>,
    keys: Option<KeyColumns>,
    /// Number of buckets that the rows' keys belong to.
    buckets: usize,
    env: Env,
    shared: Option<SharedCounts>,
    fixed: OnceCell<Arc<RowCounts>>,
    inputs: OnceCell<Arc<RowCounts>>,
    /// Counts of recent passes, latest first.
    passes: Mutex<VecDeque<(PassName, Arc<RowCounts>)>>,
}

impl RowCounter {
    pub(crate) fn new(
        plan: &Arc<OpenPlan>,
        keys: Option<KeyColumns>,
        buckets: usize,
        shared: Option<SharedCounts>,
        env: &Env,
    ) -> Self {
        Self {
            plan: Arc::clone(plan),
            keys,
            buckets,
            env: env.clone(),
            shared,
            fixed: OnceCell::new(),
            inputs: OnceCell::new(),
            passes: Mutex::default(),
        }
    }

    /// Returns the columns that hold the rows' keys; `None` if rows have no keys.
    pub(crate) const fn keys(&self) -> Option<&KeyColumns> {
        self.keys.as_ref()
    }

    /// Returns the counts if they are the same in every pass. Ranks with a common folder share the
    /// work.
    pub(crate) async fn fixed(&self, rank: u64, world: u64) -> Result<Arc<RowCounts>> {
        let count = async || match &self.shared {
            Some(shared) if world > 1 => self.count_together(shared, rank, world).await,
            _ => RowCounts::of(&self.plan, self.keys.as_ref(), 0, &self.env).await,
        };
        let counted = async || count().await.map(Arc::new);
        self.fixed.get_or_try_init(counted).await.map(Arc::clone)
    }

    /// Returns the counts of the rows that the inputs of a MIX give, before any filter above the
    /// MIX; `None` if each stored row gives one row.
    pub(crate) async fn inputs(&self) -> Result<Option<Arc<RowCounts>>> {
        let mixed = self.plan.mixed.as_ref();
        let Some(inputs) = mixed.and_then(|mixed| mixed.inputs.as_ref()) else {
            return Ok(None);
        };
        let counted = async || {
            let counts = RowCounts::of_inputs(&self.plan, inputs, &self.env).await?;
            Ok(Arc::new(counts))
        };
        { self.inputs.get_or_try_init(counted).await }.map(|counts| Some(Arc::clone(counts)))
    }

    /// Returns the counts of the pass with this key, if draws decide them.
    pub(crate) async fn of_pass(&self, pass: PassName, key: u64) -> Result<Arc<RowCounts>> {
        let passes = || self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, counts)) = passes().iter().find(|(of, _)| *of == pass) {
            return Ok(Arc::clone(counts));
        }
        let counts = RowCounts::of(&self.plan, self.keys.as_ref(), key, &self.env).await?;
        let counts = Arc::new(counts);
        let mut passes = passes();
        passes.truncate(KEPT - 1);
        passes.push_front((pass, Arc::clone(&counts)));
        Ok(counts)
    }

    /// Counts together with the other ranks: each counts some of the stored rows.
    async fn count_together(
        &self,
        shared: &SharedCounts,
        rank: u64,
        world: u64,
    ) -> Result<RowCounts> {
        let ranges = ranges(&self.plan.data.snapshot, world * SHARES_PER_RANK);
        let splits: Vec<Range<u32>> = ranges.iter().map(|(splits, _)| splits.clone()).collect();
        let rows: Vec<Range<u64>> = ranges.into_iter().map(|(_, rows)| rows).collect();
        let first = (rank as usize * rows.len()) / world as usize;
        let count = |range: Range<u64>| {
            let at = rows.iter().position(|of| *of == range).unwrap_or(0);
            let splits = splits[at].clone();
            let keys = self.keys.as_ref();
            async move { RowCounts::share(&self.plan, keys, splits, range, &self.env).await }
        };
        let buckets = self.keys.as_ref().map(|_| self.buckets);
        let shares = Shares::new(&shared.folder, &shared.name, buckets);
        Ok(RowCounts::of_shares(shares.all(&rows, first, count).await?))
    }
}

/// Divides the splits into about `shares` ranges with about equally many stored rows. Returns the
/// range of splits and the range of stored rows of each.
fn ranges(snapshot: &Snapshot, shares: u64) -> Vec<(Range<u32>, Range<u64>)> {
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
