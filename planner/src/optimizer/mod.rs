//! The optimiser: rewrites of the row plan in an e-graph, and the choice among them by cost.
//!
//! A plan is lowered to a term over slots, the rules of the tiers that the user allows are applied
//! until nothing is left to rewrite, and the cheapest plan of the root's class is raised again. On any
//! doubt the written plan runs, and the report says why.
//!
//! | module | what it holds |
//! |---|---|
//! | [`slots`](mod@slots), [`slot_map`](mod@slot_map) | columns under names that no operator changes |
//! | [`spec`](mod@spec) | operators with what may be assumed of them |
//! | [`arena`](mod@arena) | what the leaves of a term stand for |
//! | [`tree`](mod@tree) | a plan as a tree of operators |
//! | [`wide`](mod@wide) | many operators that are searched as one |
//! | [`lower`](mod@lower), [`raise`](mod@raise) | row plan to tree and back |
//! | `chain` | nested calls as steps |
//! | [`rules`](mod@rules) | the rewrite rules, a file per family |
//! | [`normal`](mod@normal) | the rules that always pay, before the search |
//! | [`sort`](mod@sort) | a good order to start the search from |
//! | [`lang`](mod@lang), [`facts`](mod@facts) | terms, and what is known of the rows of a class |
//! | [`estimate`](mod@estimate) | rows and bytes, about |
//! | [`graph`](mod@graph), [`saturate`](mod@saturate) | the e-graph and its saturation |
//! | [`profile`](mod@profile) | sizes and selectivities of a few rows |
//! | [`seen`](mod@seen), [`basis`](mod@basis) | what a choice was made by, for other processes |
//! | [`coefficients`](mod@coefficients), [`cost`](mod@cost) | prices, and what operators cost |
//! | [`cache`](mod@cache), [`stored`](mod@stored) | what may be cached, what that costs, and what is stored already |
//! | [`extract`](mod@extract) | the cheapest plan, with its cache point |
//! | `proof`, [`explain`](mod@explain) | how it was found, for EXPLAIN |

pub mod arena;
pub mod basis;
pub mod cache;
#[cfg(test)]
mod cedar;
mod chain;
pub mod coefficients;
pub mod cost;
#[cfg(test)]
mod declared_tests;
pub mod estimate;
pub mod explain;
pub mod extract;
pub mod facts;
pub mod graph;
pub mod lang;
pub mod lower;
pub mod normal;
#[cfg(test)]
mod oracle;
pub mod profile;
mod proof;
pub mod raise;
pub mod rules;
pub mod saturate;
pub mod seen;
pub mod slot_map;
pub mod slots;
pub mod sort;
pub mod spec;
pub mod stored;
#[cfg(test)]
mod tests;
pub mod tree;
pub mod wide;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, plan_err};

use self::arena::Arena;
use self::basis::Basis;
use self::cache::{Budget, CacheCosts};
use self::coefficients::Coefficients;
use self::cost::Cost;
use self::graph::plant;
use self::lang::Term;
use self::lower::Lowered;
use self::normal::{Applied, normal};
use self::profile::{Probe, Profile};
use self::rules::{Rule, Tier, is_disabled, rules};
use self::saturate::{Limits, Saturation, saturate};
use self::seen::{Seen, SeenRows, SeenScan};
use self::sort::{effects, sorted};
use self::stored::{StoredPoint, StoredRows};
use self::tree::Tree;
use crate::clauses::{Cache, Clauses};
use crate::rows::{RowOp, RowPlan};

/// What plans are priced for.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Prices of one core.
    pub prices: Arc<Coefficients>,
    /// Cores that compute; 0 counts as one.
    pub cores: u64,
    /// Bytes a second that the cache's storage takes, as measured.
    pub cache_write: Option<u64>,
    /// Bytes a second that the cache's storage gives, as measured.
    pub cache_read: Option<u64>,
    /// What the cache has already; absent where it was not asked.
    pub stored: Option<Arc<dyn StoredRows>>,
    /// Gives rows of the pipeline's sources, where it is to be profiled.
    pub probe: Option<Arc<dyn Probe>>,
    /// What an earlier choice was made by, where it is to be made again. No rows are looked at then.
    pub basis: Option<Arc<Basis>>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            prices: Coefficients::declared(),
            cores: 1,
            cache_write: None,
            cache_read: None,
            stored: None,
            probe: None,
            basis: None,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tier: Tier::default(),
            disabled: BTreeSet::new(),
            prices: Coefficients::declared(),
            cache: CacheCosts::default(),
            limits: Limits::default(),
            probe: None,
            seen: None,
            proofs: false,
        }
    }
}

impl Machine {
    /// The price of a byte of the cache, in picoseconds of one core: while storage is busy, all of
    /// them could compute.
    fn cache_price(&self, measured: Option<u64>, declared: u128) -> u128 {
        let wall = measured.map_or(declared, |bytes| {
            1_000_000_000_000 / u128::from(bytes.max(1))
        });
        wall.saturating_mul(self.cores.max(1).into())
    }
}

/// What the optimiser may do.
#[derive(Debug, Clone)]
pub struct Config {
    /// How far it may change the stream.
    pub tier: Tier,
    /// Names of rules, or of families of rules, that are left out.
    pub disabled: BTreeSet<String>,
    /// Prices.
    pub prices: Arc<Coefficients>,
    /// What caching costs, and over how many epochs plans are priced.
    pub cache: CacheCosts,
    /// Where the search ends.
    pub limits: Limits,
    /// Gives rows to be profiled.
    pub probe: Option<Arc<dyn Probe>>,
    /// What was seen of sources and rows before, where that is to be believed instead.
    pub seen: Option<Arc<Seen>>,
    /// Whether it keeps proofs of what it finds, for EXPLAIN. It finds the same without.
    pub proofs: bool,
}

/// Epochs over which a pipeline without end is priced: a usual length of a training run on ImageNet.
const ENDLESS: u64 = 90;

impl Config {
    /// What a pipeline's clauses allow, on this machine.
    ///
    /// # Errors
    /// A cache is asked for without a place for it.
    pub fn of(clauses: &Clauses, machine: &Machine) -> Result<Self> {
        let options = &clauses.options;
        let earlier = machine.basis.as_deref();
        let (quota, price) = match earlier.map(|basis| &basis.cache) {
            Some(Some(cache)) => (cache.quota, cache.price),
            Some(None) => (None, 0),
            None => (options.cache_quota, options.cache_price),
        };
        let budget = |freezing| Budget {
            bytes: quota.map_or(u128::MAX, u128::from),
            write: machine.cache_price(machine.cache_write, machine.prices.cache_write.into()),
            read: machine.cache_price(machine.cache_read, machine.prices.cache_read.into()),
            row: machine.prices.cache_row.into(),
            price: price.into(),
            freezing,
        };
        let (budget, at) = match (&clauses.cache, &options.cache_dir, earlier) {
            (Some(Cache::Auto | Cache::At { .. }), None, _) => {
                return plan_err!("CACHE needs a place for the rows: OPTIONS (cache_dir = '..')");
            }
            // Whether draws are kept is a matter of meaning, so it is for the clause to say.
            (Some(Cache::At { step, freezing }), Some(_), earlier)
                if *freezing || earlier.is_none() =>
            {
                (Some(budget(*freezing)), Some(step.clone()))
            }
            (_, _, Some(basis)) => match &basis.cache {
                Some(cache) => (Some(budget(false)), cache.at.clone()),
                None => (None, None),
            },
            (Some(Cache::Off), _, None) | (None, None, None) => (None, None),
            (_, Some(_), None) => (Some(budget(false)), None),
        };
        Ok(Self {
            tier: options.relax,
            disabled: options.disable_rules.clone(),
            prices: Arc::clone(&machine.prices),
            cache: CacheCosts {
                epochs: match earlier {
                    Some(basis) => basis.epochs,
                    None => clauses.repeat.epochs.map_or(ENDLESS, NonZeroU64::get),
                },
                stored: machine.stored.clone().filter(|_| budget.is_some()),
                budget,
                at,
            },
            limits: Limits::default(),
            probe: machine.probe.clone(),
            seen: earlier.map(|basis| Arc::new(basis.seen.clone())),
            proofs: false,
        })
    }

    /// An empty arena of these prices, that knows what was seen of sources.
    fn arena(&self) -> Arena {
        let mut arena = Arena::new(Arc::clone(&self.prices));
        arena.said = self.seen.iter().flat_map(|s| s.scans.clone()).collect();
        arena.epochs = self.cache.epochs;
        arena
    }

    fn rules(&self) -> Vec<Rule> {
        let rules = rules().into_iter();
        rules
            .filter(|rule| rule.tier <= self.tier && !is_disabled(&self.disabled, rule.name))
            .collect()
    }
}

/// What the optimiser did with a plan.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Cost of the written plan over all epochs.
    pub written: Cost,
    /// Cost of the chosen plan over all epochs.
    pub chosen: Cost,
    /// Whether a point of it is cached.
    pub cached: bool,
    /// What computing a row of what is cached costs.
    pub cached_row: Cost,
    /// What was stored of it, where it was chosen for that.
    pub stored: Option<StoredPoint>,
    /// The rules that were applied before the search.
    pub before: Vec<Applied>,
    /// How the search went.
    pub saturation: Saturation,
    /// What was known of the sources and their rows.
    pub seen: Seen,
    /// Why the written plan runs, where it does on a doubt.
    pub doubt: Option<String>,
}

/// The plan that the search chose, with all that it knew.
struct Searched {
    graph: graph::PlanGraph,
    /// The plan from which it started.
    start: Term,
    /// That plan as a tree, and in the good order from which it started too.
    normal: Tree,
    sorted: Tree,
    chosen: Tree,
    report: Report,
}

/// Searches for the cheapest plan that is equal to a lowered one; else says why it must not be believed.
fn search(mut arena: Arena, lowered: &Lowered, config: &Config) -> Result<Searched, String> {
    let operators = wide::operators(&lowered.tree);
    if operators > wide::MAX_OPERATORS {
        return Err(format!(
            "the plan has {operators} operators, and at most {} are searched",
            wide::MAX_OPERATORS
        ));
    }
    let rules = config.rules();
    let mut report = Report::default();
    let tree = normal(&mut arena, &rules, lowered.tree.clone(), &mut report.before);
    let wanted = lowered.wanted();
    report.seen = Seen::of(&arena);
    let rows = config.seen.as_ref().and_then(|seen| seen.profile.as_ref());
    let probe = config.probe.as_ref().filter(|_| config.seen.is_none());
    if rows.is_some() || probe.is_some() {
        let needed = lowered.tree.needed(&mut arena, &wanted);
        let message = |error: DataFusionError| error.strip_backtrace();
        if let Some(rows) = rows {
            arena.profile = rows.profile(&arena, &needed).map_err(message)?;
        }
        if let Some(probe) = probe {
            arena.profile = Profile::of(&arena, &needed, probe.as_ref());
        }
        report.seen.profile = Some(SeenRows::of(&arena, &needed).map_err(message)?);
    }
    let written = lowered.tree.term(&mut arena, &wanted);
    let written = extract::price(&mut arena, &config.prices, &written)?;
    report.written = written.saturating_mul(config.cache.epochs.into());
    let term = tree.term(&mut arena, &wanted);
    let (mut graph, root) = plant(arena, &term, config.proofs);
    let known = effects(&graph, &config.prices, &term);
    let sorted = sorted(&mut graph.analysis.arena, &rules, &known, &tree);
    if sorted != tree {
        // Operators that may pass each other one by one need not have types in every order.
        let term = sorted.term(&mut graph.analysis.arena, &wanted);
        if extract::price(&mut graph.analysis.arena, &config.prices, &term).is_ok() {
            let id = graph.add_expr_uncanonical(&term);
            if graph::agree(&graph, root, id) {
                graph.union_trusted(root, id, sort::NAME);
            }
        }
    }
    let disabled = |name: &str| is_disabled(&config.disabled, name);
    report.saturation = saturate(&mut graph, &rules, disabled, config.limits);
    if let Some(why) = graph.analysis.poisoned.take() {
        return Err(why);
    }
    let at = config.cache.at.as_ref();
    let at = at.map(|step| cache::steps(&graph.analysis.arena, lowered, step));
    let found = stored::cheapest(&graph, config, lowered, at.as_ref(), root);
    let (chosen, priced, stored) = found.ok_or("no plan could be chosen")?;
    report.chosen = priced.total;
    report.cached = priced.cached_at.is_some();
    report.cached_row = priced.cached_row;
    report.stored = stored;
    Ok(Searched {
        start: term,
        normal: tree,
        sorted,
        chosen,
        graph,
        report,
    })
}

/// The cheapest plan that the rules of up to the tier find for `plan`.
pub fn optimize(plan: RowPlan, clauses: &Clauses, config: &Config) -> Result<(RowPlan, Report)> {
    let (plan, builds) = with_builds(plan, config)?;
    let mut arena = config.arena();
    let lowered = lowered(&mut arena, &plan, clauses, config)?;
    let mut seen = Seen::of(&arena);
    seen.scans.extend(builds.clone());
    let mut searched = match search(arena, &lowered, config) {
        Ok(searched) => searched,
        Err(why) => return doubted(plan, clauses, why, seen),
    };
    searched.report.seen.scans.extend(builds);
    if let (Some(step), false) = (&config.cache.at, searched.report.cached) {
        return Err(cache::refused_at(&searched, &lowered, config, step));
    }
    let arena = &searched.graph.analysis.arena;
    let raised = raise::raise(arena, &searched.chosen, &lowered.outputs)?;
    let columns = raised.schema.fields().iter().zip(plan.schema.fields());
    if let Some((got, wanted)) = columns.into_iter().find(|(a, b)| a != b) {
        let why = format!("the chosen plan has the column {got} instead of {wanted}");
        return doubted(plan, clauses, why, searched.report.seen);
    }
    Ok((raised, searched.report))
}

/// The plan with the build sides of its lookups optimised, each by itself, and what their sources say of
/// themselves.
fn with_builds(plan: RowPlan, config: &Config) -> Result<(RowPlan, BTreeMap<u32, SeenScan>)> {
    // It is read once.
    let config = Config {
        cache: CacheCosts::default(),
        probe: None,
        seen: config.seen.as_ref().map(|seen| {
            Arc::new(Seen {
                profile: None,
                ..Seen::clone(seen)
            })
        }),
        ..config.clone()
    };
    let mut scans = BTreeMap::new();
    let plan = plan.rewrite(&mut |mut node| {
        if matches!(node.op, RowOp::Lookup { .. }) {
            let build = node.inputs.swap_remove(1);
            let (build, report) = optimize(build, &Clauses::default(), &config)?;
            scans.extend(report.seen.scans);
            node.inputs.push(build);
        }
        Ok(node)
    })?;
    Ok((plan, scans))
}

/// A plan as the search takes it.
fn lowered(
    arena: &mut Arena,
    plan: &RowPlan,
    clauses: &Clauses,
    config: &Config,
) -> Result<Lowered> {
    let mut lowered = lower::lower(arena, plan, clauses)?;
    if let (true, Some(step)) = (clauses.freezes(), &config.cache.at) {
        cache::fix_draws(arena, &mut lowered, step)?;
    }
    Ok(lowered)
}

/// The written plan, since the chosen one is in doubt.
fn doubted(plan: RowPlan, clauses: &Clauses, why: String, seen: Seen) -> Result<(RowPlan, Report)> {
    if clauses.freezes() {
        return plan_err!("FREEZING RANDOMNESS needs a chosen plan, and there is none: {why}");
    }
    let report = Report {
        doubt: Some(why),
        seen,
        ..Report::default()
    };
    Ok((plan, report))
}
