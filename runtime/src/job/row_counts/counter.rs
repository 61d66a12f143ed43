//! Counting of output rows before a run. Ranks need the counts to take equally many steps, and MIX
//! needs the counts to draw inputs.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::{Result, internal_err};
use forebay_planner::compile::Compiled;
use futures::TryStreamExt;
use tokio::sync::OnceCell;

use super::count_index::CountIndex;
use super::counts::RowCounts;
use super::shares::{Share, Shares};
use crate::group_key::KeyColumns;
use crate::job::open_plan::{Mixed, OpenPlan};
use crate::order::{PassName, Snapshot};
use crate::segment::{Env, FragmentReader, SegmentContext, stored_order};
use crate::stream::group::Grouping;

/// Maximum number of passes whose counts are kept if random draws decide the counts. After that,
/// the counts of the oldest pass are dropped.
const KEPT: usize = 4;
/// Number of shares per rank. With several shares per rank, other ranks can count shares of a slow
/// rank.
const SHARES_PER_RANK: u64 = 4;

/// Counter of the output rows of each stored row. It keeps the counts for later runs of the job.
#[derive(Debug)]
pub(crate) struct RowCounter {
    plan: Arc<OpenPlan>,
    keys: Option<KeyColumns>,
    env: Env,
    /// Counts that ranks share through a common folder; `None` without such a folder.
    shares: Option<Shares>,
    fixed: OnceCell<Arc<RowCounts>>,
    inputs: OnceCell<Arc<RowCounts>>,
    /// Counts of recent passes, latest first.
    passes: Mutex<VecDeque<(PassName, Arc<RowCounts>)>>,
}

impl RowCounter {
    /// Creates a counter for the pipeline `compiled`, whose opened plan is `plan`.
    pub(crate) fn of(compiled: &Compiled, plan: &Arc<OpenPlan>, env: &Env) -> Result<Self> {
        let keys = KeyColumns::of(&compiled.clauses, plan.reader.fragment.schema());
        let buckets = Grouping::of(&compiled.clauses).buckets;
        Ok(Self {
            plan: Arc::clone(plan),
            shares: Shares::of(compiled, plan, keys.as_ref().map(|_| buckets))?,
            keys,
            env: env.clone(),
            fixed: OnceCell::new(),
            inputs: OnceCell::new(),
            passes: Mutex::default(),
        })
    }

    /// Returns true if rows have group keys, which decide the grouping of rows into batches.
    pub(crate) const fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// Returns the counts of a pipeline whose counts are the same in every pass. Ranks with a
    /// common folder share the counting.
    pub(crate) async fn fixed(&self, rank: u64, world: u64) -> Result<Arc<RowCounts>> {
        let count = async || match &self.shares {
            Some(shares) if world > 1 => self.count_together(shares, rank, world).await,
            _ => self.count(0).await,
        };
        let counted = async || count().await.map(Arc::new);
        self.fixed.get_or_try_init(counted).await.map(Arc::clone)
    }

    /// Returns the counts of the rows that the inputs of a MIX yield, before any filter above the
    /// MIX; `None` if each stored row gives one row of its input.
    pub(crate) async fn inputs(&self) -> Result<Option<Arc<RowCounts>>> {
        let mixed = self.plan.mixed.as_ref();
        let Some(inputs) = mixed.and_then(|mixed| mixed.inputs.as_ref()) else {
            return Ok(None);
        };
        let counted = async || self.count_all(inputs, None, 0).await.map(Arc::new);
        { self.inputs.get_or_try_init(counted).await }.map(|counts| Some(Arc::clone(counts)))
    }

    /// Returns the counts of pass `pass`, whose key is `key`, of a pipeline whose counts depend on
    /// random draws.
    pub(crate) async fn of_pass(&self, pass: PassName, key: u64) -> Result<Arc<RowCounts>> {
        let passes = || self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, counts)) = passes().iter().find(|(of, _)| *of == pass) {
            return Ok(Arc::clone(counts));
        }
        let counts = Arc::new(self.count(key).await?);
        let mut passes = passes();
        passes.truncate(KEPT - 1);
        passes.push_front((pass, Arc::clone(&counts)));
        Ok(counts)
    }

    /// Counts the output rows of all stored rows; under MIX, also the rows that the inputs yield.
    async fn count(&self, pass: u64) -> Result<RowCounts> {
        let reader = self.membership()?;
        let counts = self.count_all(reader, self.keys.as_ref(), pass).await?;
        let given = match &self.plan.mixed {
            None => return Ok(counts),
            Some(Mixed { inputs: None, .. }) => CountIndex::One(self.plan.data.snapshot.rows()),
            Some(Mixed {
                inputs: Some(inputs),
                ..
            }) => self.count_all(inputs, None, pass).await?.into_given(),
        };
        Ok(counts.above_mix(given))
    }

    /// Counts the output rows of all stored rows together with the other ranks. Each rank counts
    /// some of the stored rows.
    async fn count_together(&self, shares: &Shares, rank: u64, world: u64) -> Result<RowCounts> {
        let reader = self.membership()?;
        let ranges = ranges(&self.plan.data.snapshot, world * SHARES_PER_RANK);
        let rows: Vec<Range<u64>> = ranges.iter().map(|(_, rows)| rows.clone()).collect();
        let first = (rank as usize * rows.len()) / world as usize;
        let count = |nth: usize| self.share(reader, self.keys.as_ref(), ranges[nth].clone(), 0);
        Ok(RowCounts::of_shares(shares.all(&rows, first, count).await?))
    }

    /// Returns the fragment of the membership plan.
    fn membership(&self) -> Result<&Arc<FragmentReader>> {
        match &self.plan.membership {
            Some(membership) => Ok(&membership.reader),
            None => internal_err!("rows were to be counted, but each stored row gives one row"),
        }
    }

    /// Counts the output rows of all stored rows by running `reader`, the fragment of a membership
    /// plan.
    async fn count_all(
        &self,
        reader: &Arc<FragmentReader>,
        keys: Option<&KeyColumns>,
        pass: u64,
    ) -> Result<RowCounts> {
        let snapshot = &self.plan.data.snapshot;
        let ranges = (0..snapshot.splits.len() as u32, 0..snapshot.rows());
        let share = self.share(reader, keys, ranges, pass).await?;
        Ok(RowCounts::of_shares(vec![share]))
    }

    /// Counts the output rows of the stored rows `rows` by running `reader`, the fragment of a
    /// membership plan, over `splits`, which contain these rows.
    async fn share(
        &self,
        reader: &Arc<FragmentReader>,
        keys: Option<&KeyColumns>,
        (splits, rows): (Range<u32>, Range<u64>),
        pass: u64,
    ) -> Result<Share> {
        let mut share = Share {
            rows: vec![0; (rows.end - rows.start) as usize],
            keys: Vec::new(),
        };
        let keys = keys.map(|keys| keys.within(reader.fragment.schema()));
        let context = SegmentContext::new(&self.plan.data, reader, &self.env);
        let mut batches = stored_order(&context, splits, pass);
        while let Some(batch) = batches.try_next().await? {
            for &stored in batch.row_ids()?.position.values() {
                share.rows[(stored - rows.start) as usize] += 1;
            }
            if let Some(keys) = &keys {
                share.keys.extend(keys.keys(&batch)?.keys);
            }
        }
        Ok(share)
    }
}

/// Divides the snapshot's splits into about `shares` ranges with about equally many stored rows.
/// Returns for each range its splits and its stored rows.
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
