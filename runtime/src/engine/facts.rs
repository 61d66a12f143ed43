//! What is known of every stored row before any is computed: how many rows it gives, and their keys.

use std::sync::Arc;

use datafusion::common::Result;
use futures::TryStreamExt;

use crate::group::Key;
use crate::job::{Env, Job, Membership};
use crate::keys::KeyColumns;
use crate::segment;

/// How many rows each stored row gives, and what decides their groups.
#[derive(Debug)]
pub(super) struct Facts {
    /// Entry `i` is the number of rows that stored rows `0..i` give.
    before: Vec<u64>,
    /// Keys of the rows that are given, in stored order; empty where rows have none.
    keys: Vec<Key>,
}

impl Facts {
    /// Runs the plan that decides over all stored rows.
    pub(super) async fn of(
        job: &Arc<Job>,
        membership: &Membership,
        keys: Option<&KeyColumns>,
        pass: u64,
        env: &Env,
    ) -> Result<Self> {
        let mut before = vec![0; job.snapshot.rows() as usize + 1];
        let mut known = Vec::new();
        let mut rows = segment::stored_order(job, &membership.reader, pass, env);
        while let Some(batch) = rows.try_next().await? {
            for &stored in batch.row_ids()?.position.values() {
                before[stored as usize + 1] += 1;
            }
            if let Some(keys) = keys {
                known.extend(keys.within(&membership.reader).keys(&batch)?.keys);
            }
        }
        for i in 1..before.len() {
            before[i] += before[i - 1];
        }
        Ok(Self {
            before,
            keys: known,
        })
    }

    /// Rows that all stored rows give.
    pub(super) fn total(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }

    /// Rows that a stored row gives.
    pub(super) fn of_row(&self, stored: u64) -> u32 {
        (self.before[stored as usize + 1] - self.before[stored as usize]) as u32
    }

    /// The key of one of the rows that a stored row gives.
    pub(super) fn key(&self, stored: u64, nth: u32) -> Key {
        let at = self.before[stored as usize] + u64::from(nth);
        self.keys.get(at as usize).copied().unwrap_or_default()
    }
}
