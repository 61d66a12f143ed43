//! Opens runs: sizes segments, and counts rows if batches depend on the counts.

use std::sync::Arc;

use datafusion::common::Result as EngineResult;
use forebay_planner::clauses::Clauses;
use forebay_planner::compile::Compiled;

use super::config::{RunConfig, RunScope};
use super::job_run::{JobRun, RowCountSource};
use super::sizing::segment_size;
use crate::cache::Stores;
use crate::error::{Error, Result};
use crate::job::row_counts::{CountCall, RowCounts};
use crate::job::{JobCache, JobConfig, OpenJob};
use crate::order::PassName;
use crate::stream::accountant::BatchRules;
use crate::stream::assignment::RankAssignment;

/// Returns the number of epochs of a run; `None` for an endless run.
fn epochs(clauses: &Clauses, config: &RunConfig) -> Option<u64> {
    config.epochs.or(clauses.repeat.epochs.map(|n| n.get()))
}

impl JobRun {
    /// Opens a compiled pipeline as a job with a single run. If the pipeline has a cache, the cache
    /// may be in one of `stores`.
    ///
    /// # Errors
    /// Fails if settings contradict each other or the pipeline, the token belongs to another stream, a file cannot be
    /// read, or rows cannot be counted.
    pub async fn open(compiled: &Compiled, config: &RunConfig, stores: &Stores) -> Result<Self> {
        config.check()?;
        let from_token = config.resume.as_ref().map(|token| token.stream.seed);
        let seed = config.seed.or(compiled.clauses.seed).or(from_token);
        let epochs = epochs(&compiled.clauses, config);
        let job_config = JobConfig {
            seed: seed.unwrap_or(0),
            epochs,
            // A loop over runs of single epochs shows only in its second epoch.
            is_repeated: epochs != Some(1) || config.first_epoch > 0,
            is_reread: config.internals.is_reread,
            threads: config.threads,
            memory_limit: config.memory_limit,
            cache: match &config.internals.engine {
                Some(engine) if engine.caches_elsewhere() => JobCache::Elsewhere,
                _ => JobCache::Own,
            },
            analyze: config.internals.analyze,
            is_cut: false,
        };
        let job = OpenJob::open(compiled, &job_config, stores).await?;
        Self::of(Arc::new(job), config).await
    }

    /// Creates a run of an opened job. Seed, threads, memory limit and plan are those of the job;
    /// the values in `config` are ignored.
    ///
    /// # Errors
    /// Fails if settings contradict each other or the pipeline, the token belongs to another stream, or rows cannot
    /// be counted.
    pub async fn of(job: Arc<OpenJob>, config: &RunConfig) -> Result<Self> {
        config.check()?;
        let clauses = &job.clauses;
        let ranks = RankAssignment::new(clauses, config.rank, config.world.max(1), config.uneven);
        let (segment_rows, in_flight) = segment_size(&job, &ranks, config)?;
        if let Some(token) = &config.resume {
            token.check(&job.name)?;
        }
        let mut stride = config.internals.stride;
        stride.of = stride.of.max(1);
        let mut run = Self {
            rules: BatchRules::new(clauses, ranks),
            stride,
            first_epoch: config.first_epoch,
            epochs: epochs(clauses, config),
            epoch_rows: None,
            counts: RowCountSource::Nothing,
            resume: config.resume.as_ref().map(|token| token.cursor.clone()),
            scope: config.internals.scope.clone(),
            replayed: None,
            segment_rows,
            in_flight,
            limit_batches: config.limit_batches,
            analyze: config.internals.analyze,
            engine: config.internals.engine.clone(),
            gate: Arc::default(),
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

    /// Decides how the run learns the number of rows that each stored row gives. Counts the rows
    /// now if the counts must be known before rows are read. If the run replays dead letters, finds
    /// the stored rows of the letters instead.
    async fn learn(&mut self) -> Result<()> {
        if let RunScope::DeadLetters(letters) = &self.scope {
            self.replayed = Some(self.replayed(letters)?);
            return Ok(());
        }
        let (job, plan) = (Arc::clone(&self.job), Arc::clone(&self.job.plan));
        let mixes = plan.mixed.is_some();
        let drops = plan.mixed.as_ref().is_some_and(|mixed| mixed.drops);
        if drops && plan.multiplies {
            return Err(Error::Config(
                "a filter above a MIX with unnest in an arm is not supported yet; filter in the arms"
                    .to_owned(),
            ));
        }
        let Some(membership) = &plan.membership else {
            if !mixes {
                self.epoch_rows = Some(self.rules.left_of(plan.data.snapshot.rows()));
            }
            return Ok(());
        };
        // A single rank takes rows as they are computed. MIX may need counts even for a single
        // rank: before an input is drawn, the rows that the input leaves out must be known.
        let is_planned = mixes && !drops && !job.counter.has_keys() || mixes && plan.multiplies;
        // Unless all rows are counted, it is unknown which rows belong to a single batch or to the
        // batches of a worker.
        let whole = !matches!(self.scope, RunScope::Step { .. });
        let is_uncountable = membership.is_random && job.clauses.freezes();
        let is_alone =
            self.rules.ranks.world == 1 && whole && (self.stride.of == 1 || is_uncountable);
        if is_alone && !is_planned {
            let by = self.count_call();
            self.counts = RowCountSource::AsComputed(job.counter.inputs(by.as_deref()).await?);
            return Ok(());
        }
        if let Some(call) = &membership.volatile {
            return Err(Error::Config(format!(
                "{call} decides which rows exist, and is not declared deterministic: several ranks, several workers \
                 of a loader and a single batch would count different rows; declare it, or run one rank from its \
                 beginning"
            )));
        }
        if is_uncountable {
            return Err(Error::Config(
                "a random filter under FREEZING RANDOMNESS cannot be counted for several ranks or workers, or for a \
                 single batch; filter without draws, or run one rank from its beginning"
                    .to_owned(),
            ));
        }
        if membership.is_random {
            self.counts = RowCountSource::Passes;
            return Ok(());
        }
        let ranks = &self.rules.ranks;
        let rank = (ranks.rank, ranks.world);
        let by = self.count_call();
        let counts = job.counter.fixed(rank, by.as_deref()).await?;
        if !mixes {
            self.epoch_rows = Some(self.rules.left_of(counts.total()));
        }
        self.counts = RowCountSource::Fixed(counts);
        Ok(())
    }

    /// Returns the function by which the run's engine counts; `None` if this process counts.
    fn count_call(&self) -> Option<Box<CountCall<'static>>> {
        let (engine, job) = (self.engine.clone()?, Arc::clone(&self.job));
        Some(Box::new(move |share| engine.count(&job, share)))
    }

    /// Returns the row counts of a pass; `None` if each stored row gives one row, or if rows are
    /// counted only as they are computed.
    pub(super) async fn row_counts(&self, pass: PassName) -> EngineResult<Option<Arc<RowCounts>>> {
        match &self.counts {
            RowCountSource::Nothing => Ok(None),
            RowCountSource::AsComputed(inputs) => Ok(inputs.clone()),
            RowCountSource::Fixed(counts) => Ok(Some(Arc::clone(counts))),
            RowCountSource::Passes => {
                let key = self.job.passes.key(pass);
                let by = self.count_call();
                let counts = self.job.counter.of_pass(pass, key, by.as_deref());
                Ok(Some(counts.await?))
            }
        }
    }
}
