//! Counts: how many rows each stored row gives, where a filter or `unnest` decides it.

use std::sync::Arc;

use futures::TryStreamExt;

use crate::error::Result;
use crate::job::{Env, Job};
use crate::order::WindowSplits;
use crate::segment;

/// How many rows each stored row gives, added up.
#[derive(Debug)]
pub(super) struct Counts {
    /// Entry `i` is the number of rows that stored rows `0..i` give.
    before: Vec<u64>,
}

impl Counts {
    pub(super) async fn of(job: &Arc<Job>, pass: u64, env: &Env) -> Result<Option<Self>> {
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

    pub(super) fn total(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }

    pub(super) fn within(&self, window: &WindowSplits, job: &Job) -> u64 {
        let splits = window
            .splits
            .iter()
            .map(|&s| &job.snapshot.splits[s as usize]);
        splits
            .map(|s| self.before[(s.start + s.rows) as usize] - self.before[s.start as usize])
            .sum()
    }

    pub(super) fn of_row(&self, stored: u64) -> u64 {
        self.before[stored as usize + 1] - self.before[stored as usize]
    }
}
