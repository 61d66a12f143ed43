//! An explained plan.

use std::collections::BTreeMap;

use super::cache_points::CacheTable;
use super::derivation::Derivation;
use super::plan::PlanNode;
use super::refused::RefusedRewrite;
use crate::optimizer::config::Config;
use crate::optimizer::report::Report;
use crate::optimizer::saturate::{Limits, Saturation};
use crate::units::cost_text;

/// The reason why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchEnd {
    /// No rule found anything to change.
    Saturated,
    /// The search reached its limit of iterations.
    Iterations(usize),
    /// The search reached its limit of nodes.
    Nodes(usize),
    /// The search reached its limit of columns.
    Columns(usize),
}

impl SearchEnd {
    pub(super) fn of(search: &Saturation, limits: Limits) -> Self {
        match search.saturated {
            true => Self::Saturated,
            false if search.iterations == limits.iterations => Self::Iterations(limits.iterations),
            false if search.columns > limits.columns => Self::Columns(limits.columns),
            false => Self::Nodes(limits.nodes),
        }
    }
}

impl std::fmt::Display for SearchEnd {
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

/// The explanation of an optimised plan.
#[derive(Debug, Clone)]
pub struct Explained {
    /// The optimiser's report.
    pub report: Report,
    /// Number of epochs that costs cover.
    pub epochs: u64,
    /// The plan as written.
    pub written: PlanNode,
    /// The plan that runs.
    pub chosen: PlanNode,
    /// The derivation of the chosen plan from the written one.
    pub derivation: Derivation,
    /// The cost of caching at each operator.
    pub cache: CacheTable,
    /// The reason why the search ended.
    pub stop: SearchEnd,
    /// For each rule, the number of times that it was applied: before the search, to sort the plan
    /// from which the search also started, and during the search.
    pub fired: BTreeMap<&'static str, usize>,
    /// Places where rules matched but were refused.
    pub refused: Vec<RefusedRewrite>,
    /// The configuration of the search.
    pub config: Config,
    /// The reason why the derivation and the cache points belong to another plan than the chosen
    /// one, if they do.
    pub caveat: Option<String>,
}

impl Explained {
    /// Takes over the report of the search without proofs. With proofs, a search that reaches a
    /// limit may find another plan; the caveat then says so.
    pub(super) fn of(self, report: &Report) -> Self {
        let other = self.report.chosen != report.chosen;
        let caveat = other.then(|| {
            let cost = cost_text(self.report.chosen);
            format!("the search met a limit, with proofs at another plan, which costs {cost}: these are of that one")
        });
        Self {
            stop: SearchEnd::of(&report.saturation, self.config.limits),
            report: report.clone(),
            caveat,
            ..self
        }
    }

    /// The number of refusals of each rule.
    pub fn refusals(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for refused in &self.refused {
            *counts.entry(refused.rule).or_default() += 1;
        }
        counts
    }
}
