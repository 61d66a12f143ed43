//! A run of a pipeline, batch by batch.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use forebay_runtime::engine::Run as EngineRun;
use forebay_runtime::tail::{Batch, RunStats};
use forebay_runtime::token::Token;

use crate::error::{Error, Result};

/// A run in progress; dropping it stops it.
#[derive(Debug)]
pub struct Run {
    pub(crate) inner: EngineRun,
    pub(crate) schema: SchemaRef,
    pub(crate) steps: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) token: Token,
    pub(crate) expected_rows: Option<u64>,
    pub(crate) epoch_rows: Option<u64>,
}

impl Run {
    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Number of batches to come, where known.
    pub fn steps(&self) -> Option<u64> {
        self.steps
    }

    /// Number of rows to come at most, where known.
    pub fn expected_rows(&self) -> Option<u64> {
        self.expected_rows
    }

    /// Rows of each epoch over all ranks, after SKIP and TAKE, where known before they come.
    pub fn epoch_rows(&self) -> Option<u64> {
        self.epoch_rows
    }

    /// Stops the run, and returns when its threads have ended; dropping it stops it without waiting.
    pub async fn stop(self) {
        self.inner.stop().await;
    }

    /// The seed in force.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What a run has to be given to begin where this one did.
    pub const fn beginning(&self) -> &Token {
        &self.token
    }

    /// The next batch; `None` at the end. After an error the run has ended.
    pub async fn next(&mut self) -> Option<Result<Batch>> {
        self.inner
            .next()
            .await
            .map(|batch| batch.map_err(Error::from))
    }

    /// Rows of the cache point that were read from the cache and that were computed, so far; `None` without
    /// a cache.
    pub fn cached(&self) -> Option<(u64, u64)> {
        self.inner.cached()
    }

    /// What was put out so far, and what became of failed rows.
    pub fn stats(&self) -> RunStats {
        self.inner.stats()
    }
}
