//! Counting of output rows before a run. Ranks need the counts to take equally many steps, and MIX
//! needs the counts to draw inputs.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::{Result, exec_err, internal_err};
use forebay_planner::compile::Compiled;
use futures::TryStreamExt;
use tokio::sync::OnceCell;

use super::count_index::CountIndex;
use super::count_share::{CountShare, ranges};
use super::counts::RowCounts;
use super::share_name::{CountCall, ShareName, count_by};
use super::shares::Shares;
use crate::group_key::KeyColumns;
use crate::job::open_plan::{Mixed, OpenPlan};
use crate::order::PassName;
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
    /// Number of buckets to which group keys may belong; `None` if rows have no group keys.
    buckets: Option<usize>,
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
        let buckets = keys.as_ref().map(|_| buckets);
        Ok(Self {
            plan: Arc::clone(plan),
            shares: Shares::of(compiled, plan, buckets)?,
            keys,
            buckets,
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

    /// Returns the counts of a pipeline whose counts are the same in every pass. An engine counts
    /// if `by` has one; else, ranks with a common folder share the counting.
    pub(crate) async fn fixed(
        &self,
        (rank, world): (u64, u64),
        by: Option<&CountCall<'_>>,
    ) -> Result<Arc<RowCounts>> {
        let count = async || match &self.shares {
            Some(shares) if world > 1 && by.is_none() => {
                self.count_together(shares, rank, world).await
            }
            _ => self.count(0, by).await,
        };
        let counted = async || count().await.map(Arc::new);
        self.fixed.get_or_try_init(counted).await.map(Arc::clone)
    }

    /// Returns the counts of the rows that the inputs of a MIX yield, before any filter above the
    /// MIX; `None` if each stored row gives one row of its input.
    pub(crate) async fn inputs(
        &self,
        by: Option<&CountCall<'_>>,
    ) -> Result<Option<Arc<RowCounts>>> {
        let mixed = self.plan.mixed.as_ref();
        if mixed.is_none_or(|mixed| mixed.inputs.is_none()) {
            return Ok(None);
        }
        let counted = async || self.count_all(true, 0, by).await.map(Arc::new);
        { self.inputs.get_or_try_init(counted).await }.map(|counts| Some(Arc::clone(counts)))
    }

    /// Returns the counts of pass `pass`, whose key is `key`, of a pipeline whose counts depend on
    /// random draws.
    pub(crate) async fn of_pass(
        &self,
        pass: PassName,
        key: u64,
        by: Option<&CountCall<'_>>,
    ) -> Result<Arc<RowCounts>> {
        let passes = || self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, counts)) = passes().iter().find(|(of, _)| *of == pass) {
            return Ok(Arc::clone(counts));
        }
        let counts = Arc::new(self.count(key, by).await?);
        let mut passes = passes();
        passes.truncate(KEPT - 1);
        passes.push_front((pass, Arc::clone(&counts)));
        Ok(counts)
    }

    /// Counts the output rows of all stored rows; under MIX, also the rows that the inputs yield.
    async fn count(&self, pass: u64, by: Option<&CountCall<'_>>) -> Result<RowCounts> {
        let counts = self.count_all(false, pass, by).await?;
        let given = match &self.plan.mixed {
            None => return Ok(counts),
            Some(Mixed { inputs: None, .. }) => CountIndex::One(self.plan.data.snapshot.rows()),
            Some(_) => self.count_all(true, pass, by).await?.into_given(),
        };
        Ok(counts.above_mix(given))
    }

    /// Counts the output rows of all stored rows together with the other ranks. Each rank counts
    /// some of the stored rows.
    async fn count_together(&self, shares: &Shares, rank: u64, world: u64) -> Result<RowCounts> {
        let ranges = ranges(&self.plan.data.snapshot, world * SHARES_PER_RANK);
        let rows: Vec<Range<u64>> = ranges.iter().map(|(_, rows)| rows.clone()).collect();
        let first = (rank as usize * rows.len()) / world as usize;
        let count = |nth: usize| self.share(false, ranges[nth].clone(), 0);
        Ok(RowCounts::of_shares(shares.all(&rows, first, count).await?))
    }

    /// Returns the fragment that decides which rows are counted: those that the inputs of the MIX
    /// yield, or the output rows. Also returns the columns of their group keys, if they have any.
    fn membership(&self, inputs: bool) -> Result<(&Arc<FragmentReader>, Option<&KeyColumns>)> {
        let mixed = self.plan.mixed.as_ref();
        let of_inputs = || mixed.and_then(|mixed| mixed.inputs.as_ref());
        let of_output = || self.plan.membership.as_ref().map(|of| &of.reader);
        match if inputs { of_inputs() } else { of_output() } {
            Some(reader) => Ok((reader, self.keys.as_ref().filter(|_| !inputs))),
            None => internal_err!("rows were to be counted, but each stored row gives one row"),
        }
    }

    /// Counts all output rows, or the rows that the inputs of the MIX yield.
    async fn count_all(
        &self,
        inputs: bool,
        pass: u64,
        by: Option<&CountCall<'_>>,
    ) -> Result<RowCounts> {
        let snapshot = &self.plan.data.snapshot;
        if let Some(count) = by {
            let buckets = self.buckets.filter(|_| !inputs);
            return count_by(count, snapshot, (inputs, pass), buckets).await;
        }
        let ranges = (0..snapshot.splits.len() as u32, 0..snapshot.rows());
        let share = self.share(inputs, ranges, pass).await?;
        Ok(RowCounts::of_shares(vec![share]))
    }

    /// Counts a share that an engine names.
    pub(crate) async fn named(&self, share: &ShareName) -> Result<CountShare> {
        let Some(rows) = share.rows(&self.plan.data.snapshot) else {
            return exec_err!("a share names splits that the data does not have");
        };
        let splits = share.splits.clone();
        self.share(share.inputs, (splits, rows), share.pass).await
    }

    /// Counts the rows of the stored rows `rows`, which `splits` contain.
    async fn share(
        &self,
        inputs: bool,
        (splits, rows): (Range<u32>, Range<u64>),
        pass: u64,
    ) -> Result<CountShare> {
        let (reader, keys) = self.membership(inputs)?;
        let mut share = CountShare {
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
