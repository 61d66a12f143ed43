//! A running pipeline, which yields batches.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use forebay_runtime::run::BatchStream;
use forebay_runtime::stream::token::Token;
use forebay_runtime::tail::{Batch, RunStats};

use crate::error::{Error, Result};

/// A run of a pipeline in progress. Dropping this handle stops the run.
#[derive(Debug)]
pub struct Run {
    pub(crate) inner: BatchStream,
    pub(crate) schema: SchemaRef,
    pub(crate) steps: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) token: Token,
    pub(crate) expected_rows: Option<u64>,
    pub(crate) epoch_rows: Option<u64>,
}

impl Run {
    /// Returns the schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Returns the number of batches that the whole run delivers; `None` if unknown or infinite.
    pub fn steps(&self) -> Option<u64> {
        self.steps
    }

    /// Returns an upper bound on the number of rows that the whole run delivers; `None` if unknown.
    pub fn expected_rows(&self) -> Option<u64> {
        self.expected_rows
    }

    /// Returns the number of rows per epoch over all ranks, after SKIP and TAKE; `None` if the
    /// number is not known in advance.
    pub fn epoch_rows(&self) -> Option<u64> {
        self.epoch_rows
    }

    /// Stops the run and waits for its threads. Dropping the run stops the run without waiting for
    /// its threads.
    pub async fn stop(self) {
        self.inner.stop().await;
    }

    /// Returns the seed in effect.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the token with which another run starts where this run started.
    pub const fn beginning(&self) -> &Token {
        &self.token
    }

    /// Returns the next batch, or `None` at the end of the run. An error ends the run.
    pub async fn next(&mut self) -> Option<Result<Batch>> {
        self.inner
            .next()
            .await
            .map(|batch| batch.map_err(Error::from))
    }

    /// Returns two numbers of rows at the pipeline's cache point so far: the rows that were read
    /// from the cache, and the rows that were computed. `None` if the plan has no cache.
    pub fn cached(&self) -> Option<(u64, u64)> {
        self.inner.cached()
    }

    /// Returns the numbers of rows and batches so far, the number of failed rows by outcome, and
    /// the first failures.
    pub fn stats(&self) -> RunStats {
        self.inner.stats()
    }
}
