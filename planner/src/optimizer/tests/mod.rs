//! Tests of the whole optimiser: plans, functions that a host declares, the example in the paper on
//! cedar, and a comparison with an enumeration of all plans.

mod cedar;
mod declared;
mod oracle;
pub(super) mod plans;

use super::Config;
use super::arena::Arena;
use super::lower::lower;
use super::saturate::site_text;
use super::search::search;
use super::tree::OperatorTree;
use crate::pipeline::Pipeline;
use crate::rows::RowPlan;

/// The operators of the plan that the search chooses for `plan`, the topmost first, and the refusals
/// of rules, one line each.
fn search_lines(
    plan: &RowPlan,
    pipeline: &Pipeline,
    config: &Config,
) -> (Vec<String>, Vec<String>) {
    let mut arena = Arena::default();
    let lowered = lower(&mut arena, plan, &pipeline.clauses, 1, None).unwrap();
    let searched = search(arena, &lowered, config).unwrap();
    assert!(searched.report.saturation.saturated);
    let arena = &searched.graph.analysis.arena;
    let mut operators = Vec::new();
    let mut at = &searched.chosen;
    while let OperatorTree::Op(param, input) = at {
        operators.push(arena.spec(*param).text.clone());
        at = input;
    }
    let refused = &searched.report.saturation.refused;
    let refusals = refused.iter().flat_map(|(rule, sites)| {
        sites.iter().map(move |(&site, why)| {
            let (outer, inner) = site_text(arena, site);
            format!("no {rule}: {outer} | {inner}: {why}")
        })
    });
    (operators, refusals.collect())
}
