//! Opens runs: sizes segments, and counts rows if batches depend on the counts.

use std::sync::Arc;

use forebay_planner::clauses::Clauses;
use forebay_planner::compile::Compiled;

use super::config::{RunConfig, RunInternals};
use super::job_run::JobRun;
use super::row_count_source::RowCountSource;
use super::sizing::Sizing;
use crate::cache::Stores;
use crate::error::Result;
use crate::job::{JobConfig, OpenJob};
use crate::stream::accountant::BatchRules;
use crate::stream::assignment::{RankAssignment, WorkerStride};

/// Returns the number of epochs of a run; `None` if it is endless.
fn epochs(clauses: &Clauses, config: &RunConfig) -> Option<u64> {
    config.epochs.or(clauses.repeat.epochs.map(|n| n.get()))
}

impl JobRun {
    /// Opens a compiled pipeline, whose cache may be in one of `stores`, as a job with a single
    /// run.
    ///
    /// # Errors
    /// Fails if settings contradict each other or the pipeline, the token belongs to another stream, a file cannot be
    /// read, or rows cannot be counted.
    pub async fn open(compiled: &Compiled, config: &RunConfig, stores: &Stores) -> Result<Self> {
        config.check()?;
        let from_token = config.resume.as_ref().map(|token| token.stream.seed);
        let seed = config.seed.or(compiled.clauses.seed).or(from_token);
        let job_config = JobConfig {
            seed: seed.unwrap_or(0),
            epochs: epochs(&compiled.clauses, config),
            threads: config.threads,
            memory_limit: config.memory_limit,
            analyze: config.internals.analyze,
        };
        let job = OpenJob::open(compiled, &job_config, stores).await?;
        Self::of(Arc::new(job), config).await
    }

    /// Creates a run of an opened job. Seed, threads, memory limit and plan are those of the job;
    /// `config` does not change them.
    ///
    /// # Errors
    /// Fails if settings contradict each other or the pipeline, the token belongs to another stream, or rows cannot
    /// be counted.
    pub async fn of(job: Arc<OpenJob>, config: &RunConfig) -> Result<Self> {
        config.check()?;
        let clauses = &job.clauses;
        let ranks = RankAssignment::new(clauses, config.rank, config.world.max(1), config.uneven);
        let RunInternals {
            stride,
            scope,
            segment_rows,
            analyze,
        } = config.internals.clone();
        let Sizing {
            rows: segment_rows,
            in_flight,
        } = Sizing::of(&job, &ranks, config.limit_batches, segment_rows)?;
        let resume = match &config.resume {
            Some(token) => {
                token.check(&job.name)?;
                Some(token.cursor.clone())
            }
            None => None,
        };
        let mut run = Self {
            rules: BatchRules::new(clauses, ranks, WorkerStride::ALL),
            stride: WorkerStride {
                of: stride.of.max(1),
                ..stride
            },
            first_epoch: config.first_epoch,
            epochs: epochs(clauses, config),
            epoch_rows: None,
            counts: RowCountSource::Nothing,
            resume,
            scope,
            replayed: None,
            segment_rows,
            in_flight,
            limit_batches: config.limit_batches,
            analyze,
            job,
        };
        if let Some(cursor) = &run.resume {
            run.check_cursor(cursor)?;
        }
        run.learn().await?;
        if !run.computes_others() {
            run.rules.stride = run.stride;
        }
        Ok(run)
    }
}
