//! The data that EXPLAIN shows about an optimised plan.

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
    /// No rule changed the e-graph any more.
    Saturated,
    /// The search reached this maximum number of iterations.
    Iterations(usize),
    /// The search reached this maximum number of e-graph nodes.
    Nodes(usize),
    /// The search reached this maximum number of columns of all e-graph classes together.
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
    /// The report of the search that chose the plan.
    pub report: Report,
    /// Number of epochs that the plan's total costs cover.
    pub epochs: u64,
    /// The plan as written.
    pub written: PlanNode,
    /// The plan that the optimiser chose, and that runs.
    pub chosen: PlanNode,
    /// The steps by which the rules rewrite the written plan to the chosen plan.
    pub derivation: Derivation,
    /// The cost of caching the rows of each operator of the chosen plan.
    pub cache: CacheTable,
    /// The reason why the search ended.
    pub stop: SearchEnd,
    /// For each rule, the number of times that the rule was applied: before the search, in the
    /// search, and to sort the operators of the plan from which the search also started.
    pub fired: BTreeMap<&'static str, usize>,
    /// The pairs of operators that a rule matched but refused to rewrite.
    pub refused: Vec<RefusedRewrite>,
    /// The configuration of the search.
    pub config: Config,
    /// A message that `derivation` and `cache` belong to another plan than the plan that runs;
    /// `None` if `derivation` and `cache` belong to the plan that runs.
    pub caveat: Option<String>,
}

impl Explained {
    /// Replaces the report by `report`, the report of the search without proofs. A search with
    /// proofs that reaches a limit may choose another plan. If so, `caveat` gets a message.
    pub(super) fn of(self, report: &Report) -> Self {
        let other = self.report.chosen != report.chosen;
        let caveat = other.then(|| {
            let cost = cost_text(self.report.chosen);
            format!("the search reached a limit and, repeated with proofs, chose another plan, which costs {cost}: the derivation and the cache points are those of that plan")
        });
        Self {
            stop: SearchEnd::of(&report.saturation, self.config.limits),
            report: report.clone(),
            caveat,
            ..self
        }
    }

    /// For each rule, the number of pairs of operators that the rule refused to rewrite.
    pub fn refusals(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for refused in &self.refused {
            *counts.entry(refused.rule).or_default() += 1;
        }
        counts
    }
}
