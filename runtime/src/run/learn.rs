//! Counts rows before a run, if they must be known: ranks need the counts to take equal steps, and
//! MIX needs them to draw inputs.

use std::sync::Arc;

use datafusion::common::Result as EngineResult;

use super::config::RunScope;
use super::job_run::JobRun;
use super::row_count_source::RowCountSource;
use crate::error::{Error, Result};
use crate::job::row_counts::RowCounts;
use crate::order::PassName;

impl JobRun {
    /// Counts the rows that must be known before they are read.
    pub(super) async fn learn(&mut self) -> Result<()> {
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
        // A single rank takes rows as they are computed. MIX needs counts even then: it draws
        // inputs, so it must know which rows they leave out.
        let is_planned = mixes && !drops && !job.counter.has_keys() || mixes && plan.multiplies;
        // The position of a single batch, or of a worker's batches, is known only if all rows are counted.
        let whole = !matches!(self.scope, RunScope::Step { .. });
        let is_uncountable = membership.is_random && job.clauses.freezes();
        let is_alone =
            self.rules.ranks.world == 1 && whole && (self.stride.of == 1 || is_uncountable);
        if is_alone && !is_planned {
            self.counts = RowCountSource::AsComputed(job.counter.inputs().await?);
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
        let counts = job.counter.fixed(ranks.rank, ranks.world).await?;
        if !mixes {
            self.epoch_rows = Some(self.rules.left_of(counts.total()));
        }
        self.counts = RowCountSource::Fixed(counts);
        Ok(())
    }

    /// Returns the row counts of a pass; `None` if each stored row gives one row, or if rows are
    /// counted as they are computed.
    pub(super) async fn row_counts(&self, pass: PassName) -> EngineResult<Option<Arc<RowCounts>>> {
        match &self.counts {
            RowCountSource::Nothing => Ok(None),
            RowCountSource::AsComputed(inputs) => Ok(inputs.clone()),
            RowCountSource::Fixed(counts) => Ok(Some(Arc::clone(counts))),
            RowCountSource::Passes => {
                let key = self.job.passes.key(pass);
                Ok(Some(self.job.counter.of_pass(pass, key).await?))
            }
        }
    }
}
