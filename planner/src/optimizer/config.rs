//! The optimiser's configuration.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use datafusion::common::{Result, plan_err};

use super::cache::{CacheBudget, CacheCosts};
use super::coefficients::Coefficients;
use super::context::PlanningContext;
use super::inputs::{CacheInputs, PlanningInputs};
use super::profile::Probe;
use super::report::Report;
use super::rules::{Rule, Tier, is_disabled, rules};
use super::saturate::Limits;
use super::statistics::Statistics;
use crate::clauses::{CacheClause, Clauses};

impl Default for Config {
    fn default() -> Self {
        Self {
            tier: Tier::default(),
            disabled: BTreeSet::new(),
            prices: Coefficients::declared(),
            cache: CacheCosts::default(),
            limits: Limits::default(),
            probe: None,
            statistics: None,
            proofs: false,
        }
    }
}

/// Settings of one run of the optimiser: allowed rules, prices, limits, and sources of statistics.
#[derive(Debug, Clone)]
pub struct Config {
    /// The highest tier of rules to apply, as in `relax = '..'`.
    pub tier: Tier,
    /// Names of disabled rules and of disabled families of rules.
    pub disabled: BTreeSet<String>,
    /// The prices of reading, moving and computing rows on one core.
    pub prices: Arc<Coefficients>,
    /// Costs of caching, and the number of epochs over which the cost of a plan is summed.
    pub cache: CacheCosts,
    /// Limits on the size of the search.
    pub limits: Limits,
    /// The source of sample rows for a profile; `None` to plan without a profile.
    pub probe: Option<Arc<dyn Probe>>,
    /// The statistics by which an earlier run of the optimiser chose its plan. If present, no new
    /// profile is measured.
    pub statistics: Option<Arc<Statistics>>,
    /// True to record proofs for EXPLAIN. Recording does not change the chosen plan.
    pub proofs: bool,
}

/// Assumed number of epochs in the price of a pipeline that repeats forever. 90 epochs are typical
/// for training on ImageNet.
const ENDLESS: u64 = 90;

impl Config {
    /// Derives the configuration from a pipeline's clauses and the planning context.
    ///
    /// # Errors
    /// Fails if the clauses request a cache without a directory.
    pub fn of(clauses: &Clauses, context: &PlanningContext) -> Result<Self> {
        let options = &clauses.options;
        let earlier = context.inputs.as_deref();
        let (quota, price) = match earlier.map(|inputs| &inputs.cache) {
            Some(Some(cache)) => (cache.quota, cache.price),
            Some(None) => (None, 0),
            None => (options.cache_quota, options.cache_price),
        };
        let budget = |freezing| CacheBudget {
            bytes: quota.map_or(u128::MAX, u128::from),
            write: context.cache_price(context.cache_write, context.prices.cache_write.into()),
            read: context.cache_price(context.cache_read, context.prices.cache_read.into()),
            row: context.prices.cache_row.into(),
            price: price.into(),
            freezing,
        };
        let (budget, at) = match (&clauses.cache, &options.cache_dir, earlier) {
            (Some(CacheClause::Auto | CacheClause::At { .. }), None, _) => {
                return plan_err!(
                    "CACHE needs a directory for the rows: OPTIONS (cache_dir = '..')"
                );
            }
            // FREEZING RANDOMNESS changes the values in the stream, so the clause overrides the
            // cache point of an earlier choice.
            (Some(CacheClause::At { step, freezing }), Some(_), earlier)
                if *freezing || earlier.is_none() =>
            {
                (Some(budget(*freezing)), Some(step.clone()))
            }
            (_, _, Some(inputs)) => match &inputs.cache {
                Some(cache) => (Some(budget(false)), cache.at.clone()),
                None => (None, None),
            },
            (Some(CacheClause::Off), _, None) | (None, None, None) => (None, None),
            (_, Some(_), None) => (Some(budget(false)), None),
        };
        Ok(Self {
            tier: options.relax,
            disabled: options.disable_rules.clone(),
            prices: Arc::clone(&context.prices),
            cache: CacheCosts {
                epochs: match earlier {
                    Some(inputs) => inputs.epochs,
                    None => clauses.repeat.epochs.map_or(ENDLESS, NonZeroU64::get),
                },
                stored: context.stored.clone().filter(|_| budget.is_some()),
                budget,
                at,
            },
            limits: Limits::default(),
            probe: context.probe.clone(),
            statistics: earlier.map(|inputs| Arc::new(inputs.statistics.clone())),
            proofs: false,
        })
    }

    /// The rules over two operators that `self.tier` and `self.disabled` allow.
    pub(super) fn rules(&self) -> Vec<Rule> {
        let rules = rules().into_iter();
        rules
            .filter(|rule| rule.tier <= self.tier && !is_disabled(&self.disabled, rule.name))
            .collect()
    }

    /// Returns the facts by which a plan was chosen, so that another machine can choose the same
    /// plan. `report` is `None` if the optimiser was off.
    pub fn inputs(&self, context: &PlanningContext, report: Option<&Report>) -> PlanningInputs {
        let cache = self.cache.budget.map(|budget| CacheInputs {
            quota: u64::try_from(budget.bytes).ok(),
            price: u64::try_from(budget.price).unwrap_or(u64::MAX),
            at: self.cache.at.clone(),
            write_bps: context.cache_write,
            read_bps: context.cache_read,
            stored: report.and_then(|report| report.stored.clone()),
        });
        PlanningInputs {
            epochs: self.cache.epochs,
            cores: context.cores,
            cache,
            statistics: report.map_or_else(Statistics::default, |report| report.statistics.clone()),
            prices: Coefficients::clone(&context.prices),
        }
    }
}
