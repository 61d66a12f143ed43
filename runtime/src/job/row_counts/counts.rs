//! Row counts: the number of rows that each stored row gives, and their keys, known before any row is computed.

use std::ops::Range;
use std::sync::Arc;

use datafusion::common::{Result, internal_err};
use futures::TryStreamExt;

use super::count_index::CountIndex;
use super::share::Share;
use crate::group_key::KeyColumns;
use crate::job::open_plan::OpenPlan;
use crate::segment::{Env, FragmentReader, SegmentContext, stored_order};
use crate::stream::group::GroupKey;

/// The number of rows that each stored row gives, and the group keys of these rows.
///
/// Under MIX, the rows that the inputs give are counted, even those that a filter above the MIX
/// drops: an input is drawn for each of them.
#[derive(Debug)]
pub(crate) struct RowCounts {
    given: Arc<CountIndex>,
    /// Stored rows whose output a filter above a MIX drops, ascending.
    dropped: Vec<u64>,
    /// Keys of the rows that reach the output, in stored order; empty if rows have no keys.
    keys: Vec<GroupKey>,
    /// Counts of the rows that reach the output.
    reached: Arc<CountIndex>,
}

impl RowCounts {
    /// Counts all stored rows by running the membership plan; under MIX, also that of the inputs.
    pub(crate) async fn of(
        plan: &OpenPlan,
        keys: Option<&KeyColumns>,
        pass: u64,
        env: &Env,
    ) -> Result<Self> {
        let whole = match &plan.membership {
            Some(membership) => Some(all(plan, &membership.reader, keys, pass, env).await?),
            None => None,
        };
        let each = || Arc::new(CountIndex::One(plan.data.snapshot.rows()));
        let Some(mixed) = &plan.mixed else {
            return Ok(Self::of_all(whole.unwrap_or_else(|| (each(), Vec::new()))));
        };
        let given = match &mixed.inputs {
            Some(inputs) => all(plan, inputs, None, pass, env).await?.0,
            None => each(),
        };
        let (reached, keys) = whole.unwrap_or_else(|| (Arc::clone(&given), Vec::new()));
        let dropped = (0..plan.data.snapshot.rows())
            .filter(|&row| given.of_row(row) > 0 && reached.of_row(row) == 0);
        Ok(Self {
            dropped: dropped.collect(),
            given,
            reached,
            keys,
        })
    }

    /// Counts some of the stored rows by running the membership plan.
    pub(crate) async fn share(
        plan: &OpenPlan,
        keys: Option<&KeyColumns>,
        splits: Range<u32>,
        rows: Range<u64>,
        env: &Env,
    ) -> Result<Share> {
        let Some(membership) = &plan.membership else {
            return internal_err!(
                "a share of the counts was asked for, but each stored row gives one row"
            );
        };
        let reader = &membership.reader;
        counted(plan, reader, keys, (splits, rows), 0, env).await
    }

    /// Combines consecutive shares that cover all stored rows.
    pub(crate) fn of_shares(shares: Vec<Share>) -> Self {
        Self::of_all(joined(shares))
    }

    /// Creates the counts if no filter above a MIX drops rows.
    fn of_all((given, keys): Joined) -> Self {
        Self {
            reached: Arc::clone(&given),
            given,
            dropped: Vec::new(),
            keys,
        }
    }

    /// Counts the rows that each input of a MIX gives. `inputs` computes only the columns that
    /// decide which rows exist, without the MIX and what is above it.
    pub(crate) async fn of_inputs(
        plan: &OpenPlan,
        inputs: &Arc<FragmentReader>,
        env: &Env,
    ) -> Result<Self> {
        Ok(Self::of_all(all(plan, inputs, None, 0, env).await?))
    }

    /// Returns the number of rows that all stored rows give.
    pub(crate) fn total(&self) -> u64 {
        self.given.total()
    }

    /// Returns the number of rows that a stored row gives.
    pub(crate) fn of_row(&self, stored: u64) -> u32 {
        self.given.of_row(stored)
    }

    /// Returns true if a filter above a MIX drops the rows of a stored row.
    pub(crate) fn drops(&self, stored: u64) -> bool {
        self.dropped.binary_search(&stored).is_ok()
    }

    /// Returns the key of the `nth` row that a stored row gives.
    pub(crate) fn key(&self, stored: u64, nth: u32) -> GroupKey {
        if self.keys.is_empty() {
            return GroupKey::default();
        }
        let at = self.reached.before(stored) + u64::from(nth);
        self.keys.get(at as usize).copied().unwrap_or_default()
    }
}

/// Row counts of consecutive stored rows, and the keys of the counted rows.
type Joined = (Arc<CountIndex>, Vec<GroupKey>);

fn joined(mut shares: Vec<Share>) -> Joined {
    let counts = CountIndex::of(shares.iter().map(|share| share.rows.as_slice()));
    let keys = shares
        .iter_mut()
        .flat_map(|share| std::mem::take(&mut share.keys));
    (Arc::new(counts), keys.collect())
}

/// Counts all stored rows.
async fn all(
    plan: &OpenPlan,
    reader: &Arc<FragmentReader>,
    keys: Option<&KeyColumns>,
    pass: u64,
    env: &Env,
) -> Result<Joined> {
    let snapshot = &plan.data.snapshot;
    let ranges = (0..snapshot.splits.len() as u32, 0..snapshot.rows());
    Ok(joined(vec![
        counted(plan, reader, keys, ranges, pass, env).await?,
    ]))
}

/// Counts the stored rows `rows` by running a membership plan over the splits that hold them.
async fn counted(
    plan: &OpenPlan,
    reader: &Arc<FragmentReader>,
    keys: Option<&KeyColumns>,
    (splits, rows): (Range<u32>, Range<u64>),
    pass: u64,
    env: &Env,
) -> Result<Share> {
    let mut share = Share {
        rows: vec![0; (rows.end - rows.start) as usize],
        keys: Vec::new(),
    };
    let context = SegmentContext::new(&plan.data, reader, env);
    let mut batches = stored_order(&context, splits, pass);
    while let Some(batch) = batches.try_next().await? {
        for &stored in batch.row_ids()?.position.values() {
            share.rows[(stored - rows.start) as usize] += 1;
        }
        if let Some(keys) = keys {
            share
                .keys
                .extend(keys.within(reader.fragment.schema()).keys(&batch)?.keys);
        }
    }
    Ok(share)
}
