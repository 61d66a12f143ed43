//! What is known of every stored row before any is computed: how many rows it gives, and their keys.

use std::ops::Range;
use std::sync::Arc;

use datafusion::common::{Result, internal_err};
use futures::TryStreamExt;

use super::counts::Counts;
use super::shares::Share;
use crate::group::Key;
use crate::job::{Env, Job, Reader};
use crate::keys::KeyColumns;
use crate::segment;

/// How many rows each stored row gives, and what decides their groups.
///
/// Where arms are mixed, these are the rows that the arms give: an arm is drawn for each of them, also where
/// a filter above the MIX drops it.
#[derive(Debug)]
pub(super) struct Facts {
    given: Arc<Counts>,
    /// Stored rows whose rows a filter above a MIX drops, ascending.
    dropped: Vec<u64>,
    /// Keys of the rows that reach the output, in stored order; empty where rows have none.
    keys: Vec<Key>,
    /// Of the rows that stored rows give, those that reach the output.
    reached: Arc<Counts>,
}

impl Facts {
    /// Runs the plans that decide over all stored rows.
    pub(super) async fn of(
        job: &Arc<Job>,
        keys: Option<&KeyColumns>,
        pass: u64,
        env: &Env,
    ) -> Result<Self> {
        let whole = match &job.membership {
            Some(membership) => Some(all(job, &membership.reader, keys, pass, env).await?),
            None => None,
        };
        let each = || Arc::new(Counts::One(job.snapshot.rows()));
        let Some(mixed) = &job.mixed else {
            return Ok(Self::of_all(whole.unwrap_or_else(|| (each(), Vec::new()))));
        };
        let given = match &mixed.arms {
            Some(arms) => all(job, arms, None, pass, env).await?.0,
            None => each(),
        };
        let (reached, keys) = whole.unwrap_or_else(|| (Arc::clone(&given), Vec::new()));
        let dropped = (0..job.snapshot.rows())
            .filter(|&row| given.of_row(row) > 0 && reached.of_row(row) == 0);
        Ok(Self {
            dropped: dropped.collect(),
            given,
            reached,
            keys,
        })
    }

    /// Runs the plan that decides over some of the stored rows.
    pub(super) async fn share(
        job: &Arc<Job>,
        keys: Option<&KeyColumns>,
        splits: Range<u32>,
        rows: Range<u64>,
        env: &Env,
    ) -> Result<Share> {
        let Some(membership) = &job.membership else {
            return internal_err!("there is nothing to count");
        };
        let reader = &membership.reader;
        counted(job, reader, keys, (splits, rows), 0, env).await
    }

    /// What shares of the stored rows, in order, say together.
    pub(super) fn of_shares(shares: Vec<Share>) -> Self {
        Self::of_all(joined(shares))
    }

    /// Where all rows that stored rows give reach the output.
    fn of_all((given, keys): Joined) -> Self {
        Self {
            reached: Arc::clone(&given),
            given,
            dropped: Vec::new(),
            keys,
        }
    }

    /// Runs the plan that decides the rows of the arms of a MIX alone.
    pub(super) async fn of_arms(job: &Arc<Job>, arms: &Arc<Reader>, env: &Env) -> Result<Self> {
        Ok(Self::of_all(all(job, arms, None, 0, env).await?))
    }

    /// Rows that all stored rows give.
    pub(super) fn total(&self) -> u64 {
        self.given.total()
    }

    /// Rows that a stored row gives.
    pub(super) fn of_row(&self, stored: u64) -> u32 {
        self.given.of_row(stored)
    }

    /// Whether a filter above a MIX drops the rows of a stored row.
    pub(super) fn drops(&self, stored: u64) -> bool {
        self.dropped.binary_search(&stored).is_ok()
    }

    /// The key of one of the rows that a stored row gives.
    pub(super) fn key(&self, stored: u64, nth: u32) -> Key {
        if self.keys.is_empty() {
            return Key::default();
        }
        let at = self.reached.before(stored) + u64::from(nth);
        self.keys.get(at as usize).copied().unwrap_or_default()
    }
}

/// How many rows stored rows give, and the keys of these.
type Joined = (Arc<Counts>, Vec<Key>);

fn joined(mut shares: Vec<Share>) -> Joined {
    let counts = Counts::of(shares.iter().map(|share| share.rows.as_slice()));
    let keys = shares
        .iter_mut()
        .flat_map(|share| std::mem::take(&mut share.keys));
    (Arc::new(counts), keys.collect())
}

/// Counts all stored rows.
async fn all(
    job: &Arc<Job>,
    reader: &Arc<Reader>,
    keys: Option<&KeyColumns>,
    pass: u64,
    env: &Env,
) -> Result<Joined> {
    let snapshot = &job.snapshot;
    let of = (0..snapshot.splits.len() as u32, 0..snapshot.rows());
    Ok(joined(vec![
        counted(job, reader, keys, of, pass, env).await?,
    ]))
}

/// Runs a plan that decides over some splits, which hold the stored rows `rows`.
async fn counted(
    job: &Arc<Job>,
    reader: &Arc<Reader>,
    keys: Option<&KeyColumns>,
    (splits, rows): (Range<u32>, Range<u64>),
    pass: u64,
    env: &Env,
) -> Result<Share> {
    let mut share = Share {
        rows: vec![0; (rows.end - rows.start) as usize],
        keys: Vec::new(),
    };
    let mut batches = segment::stored_order(job, reader, splits, pass, env);
    while let Some(batch) = batches.try_next().await? {
        for &stored in batch.row_ids()?.position.values() {
            share.rows[(stored - rows.start) as usize] += 1;
        }
        if let Some(keys) = keys {
            share.keys.extend(keys.within(reader).keys(&batch)?.keys);
        }
    }
    Ok(share)
}
