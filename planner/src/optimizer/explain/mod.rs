//! What EXPLAIN says of the optimiser: how the chosen plan came about, and what else there was.
//!
//! It is made when it is asked for: the search is run again, this time with proofs.
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | a plan with the cost, the rows and the bytes of each operator |
//! | [`derivation`] | the steps from the written plan to the chosen one |
//! | [`cache_points`] | what caching would cost at each operator |
//! | [`why_not`] | where a rule matched, and why it did not apply |
//! | [`picture`] | plans as DOT and as SVG |

pub mod cache_points;
pub mod derivation;
pub mod picture;
pub mod plan;
mod rewrite;
mod sorting;
#[cfg(test)]
mod tests;
pub mod why_not;

use std::collections::BTreeMap;

use datafusion::common::{DataFusionError, Result};

use self::cache_points::CacheTable;
use self::derivation::{Derivation, Told};
use self::plan::{Located, PlanNode, Walk};
use self::sorting::moves;
use self::why_not::Refused;
use super::arena::{Arena, ParamId};
use super::lower::Lowered;
use super::saturate::{Limits, Saturation};
use super::spec::OpKind;
use super::{Config, Report, Searched, extract, lowered, search, with_builds};
use crate::clauses::Clauses;
use crate::error::PlanError;
use crate::rows::RowPlan;
use crate::units::cost_text;

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Nothing was left to rewrite.
    Saturated,
    /// The limit of iterations.
    Iterations(usize),
    /// The limit of nodes.
    Nodes(usize),
    /// The limit of columns.
    Columns(usize),
}

impl Stop {
    fn of(search: &Saturation, limits: Limits) -> Self {
        match search.saturated {
            true => Self::Saturated,
            false if search.iterations == limits.iterations => Self::Iterations(limits.iterations),
            false if search.columns > limits.columns => Self::Columns(limits.columns),
            false => Self::Nodes(limits.nodes),
        }
    }
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Saturated => f.write_str("saturated"),
            Self::Iterations(limit) => write!(f, "stopped at its limit of {limit} iterations"),
            Self::Nodes(limit) => write!(f, "stopped at its limit of {limit} nodes"),
            Self::Columns(limit) => {
                write!(
                    f,
                    "stopped at its limit of {limit} columns in all plans together"
                )
            }
        }
    }
}

/// What the optimiser did with a plan, and why.
#[derive(Debug, Clone)]
pub struct Explained {
    /// In short.
    pub report: Report,
    /// Epochs over which costs are counted.
    pub epochs: u64,
    /// The plan as written.
    pub written: PlanNode,
    /// The plan that runs.
    pub chosen: PlanNode,
    /// From the one to the other.
    pub derivation: Derivation,
    /// What caching would cost.
    pub cache: CacheTable,
    /// How the search ended.
    pub stop: Stop,
    /// How often each rule was applied: before the search, to sort its second start, and in it.
    pub fired: BTreeMap<&'static str, usize>,
    /// Where rules matched and did not apply.
    pub refused: Vec<Refused>,
    /// What the search was given.
    pub config: Config,
    /// Why the steps and the cache points are of another plan than the one that runs, where they are.
    pub caveat: Option<String>,
}

impl Explained {
    /// With the report of the search without proofs. A search that meets a limit may meet it elsewhere
    /// when it keeps proofs.
    fn of(self, report: &Report) -> Self {
        let other = self.report.chosen != report.chosen;
        let caveat = other.then(|| {
            let cost = cost_text(self.report.chosen);
            format!("the search met a limit, with proofs at another plan, which costs {cost}: these are of that one")
        });
        Self {
            stop: Stop::of(&report.saturation, self.config.limits),
            report: report.clone(),
            caveat,
            ..self
        }
    }

    /// How often each rule was refused.
    pub fn refusals(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for refused in &self.refused {
            *counts.entry(refused.rule).or_default() += 1;
        }
        counts
    }
}

/// Explains what [`optimize`](super::optimize) does with a plan, of which it gave `report`.
pub fn explain(
    plan: &RowPlan,
    clauses: &Clauses,
    config: &Config,
    report: &Report,
) -> Result<Explained> {
    let config = Config {
        proofs: true,
        ..config.clone()
    };
    let (plan, _) = with_builds(plan.clone(), &config)?;
    let mut arena = config.arena();
    let lowered = lowered(&mut arena, &plan, clauses, &config)?;
    let found = match &report.doubt {
        None => search(arena, &lowered, &config),
        Some(why) => Err(why.clone()),
    };
    match found {
        Ok(searched) => told(searched, &lowered, config).map(|told| told.of(report)),
        Err(why) => as_written(&plan, clauses, config, why),
    }
    .map_err(|why| DataFusionError::from(PlanError::internal(why)))
}

/// The explanation of a search.
pub(super) fn told(
    searched: Searched,
    lowered: &Lowered,
    config: Config,
) -> Result<Explained, String> {
    let Searched {
        mut graph,
        start,
        normal,
        sorted,
        chosen,
        report,
    } = searched;
    let wanted = lowered.wanted();
    let arena = &mut graph.analysis.arena;
    let written = lowered.tree.term(arena, &wanted);
    let written_nodes = extract::price_each(arena, &config.prices, &written)?;
    let written = Walk::new(&written, &written_nodes).plan(arena, None);
    let root = graph
        .lookup_expr(&start)
        .ok_or("the start is not in the graph")?;
    let located = plan::locate(&graph, root, &chosen);
    let Located { term, kept } = located.ok_or("the chosen plan is not in the graph")?;
    let priced = extract::price_in(&graph, &config.prices, &term)
        .ok_or("the chosen plan is not in the graph")?;
    let walk = Walk::new(&term, &priced);
    let rules = config.rules();
    let parts = Told {
        lowered,
        config: &config,
        rules: &rules,
        before: &report.before,
        sorting: moves(&mut graph.analysis.arena, &rules, &normal, &sorted),
        direct: moves(&mut graph.analysis.arena, &rules, &normal, &chosen),
        normal,
        written: report.written,
    };
    let mut derivation = Derivation::new(&mut graph, &parts, &start, &term)?;
    let arena = &graph.analysis.arena;
    let stored = report.stored.as_ref().map_or(0, |point| point.rows);
    let cache = CacheTable::new(arena, &walk, &config, lowered, kept, stored);
    if let Some(at) = kept {
        derivation.cached(walk.text(arena, at), report.written, report.chosen);
    }
    let search = &report.saturation;
    let mut fired = search.fired.clone();
    let sorting = parts.sorting.iter().flatten().flatten();
    for (rule, _) in report.before.iter().chain(sorting) {
        *fired.entry(rule).or_default() += 1;
    }
    Ok(Explained {
        written,
        chosen: walk.plan(arena, kept),
        derivation,
        cache,
        epochs: config.cache.epochs,
        stop: Stop::of(search, config.limits),
        fired,
        refused: Refused::all(arena, search),
        report,
        config,
        caveat: None,
    })
}

/// The explanation where the written plan runs on a doubt.
fn as_written(
    plan: &RowPlan,
    clauses: &Clauses,
    config: Config,
    why: String,
) -> Result<Explained, String> {
    let mut arena = config.arena();
    let lowered = lowered(&mut arena, plan, clauses, &config).map_err(|e| e.strip_backtrace())?;
    let term = lowered.tree.term(&mut arena, &lowered.wanted());
    let priced = extract::price_each(&mut arena, &config.prices, &term)?;
    let walk = Walk::new(&term, &priced);
    let written = walk.plan(&arena, None);
    let total = written.below.saturating_mul(config.cache.epochs.into());
    Ok(Explained {
        report: Report {
            written: total,
            chosen: total,
            doubt: Some(why),
            ..Report::default()
        },
        epochs: config.cache.epochs,
        chosen: written.clone(),
        written,
        derivation: Derivation::default(),
        cache: CacheTable::new(&arena, &walk, &config, &lowered, None, 0),
        stop: Stop::Saturated,
        fired: BTreeMap::new(),
        refused: Vec::new(),
        config,
        caveat: None,
    })
}

/// An operator for people.
fn text(arena: &Arena, param: ParamId) -> String {
    let spec = arena.spec(param);
    match spec.kind {
        OpKind::Filter { .. } | OpKind::Filters(_) => format!("filter {}", spec.text),
        _ => spec.text.clone(),
    }
}
