//! Prices the nodes of a plan, which is a term or part of an e-graph.

use std::sync::Arc;

use egg::{Id, Language};

use super::arena::Arena;
use super::coefficients::Coefficients;
use super::cost::{Cost, self_cost};
use super::facts::fact;
use super::graph::{PlanGraph, param_of, plan_fact};
use super::lang::{Node, Term};
use super::plan_fact::{Fact, PlanFact};
use super::profile::Profile;

/// A node's cost, and the facts from which the cost was computed.
#[derive(Debug, Clone)]
pub(crate) struct NodePrice {
    /// Facts about the rows that the node yields; `None` for a leaf that names an operator or
    /// slots.
    pub fact: Option<Arc<PlanFact>>,
    /// Cost of the node per epoch, without the cost of its inputs, in picoseconds of one core.
    pub own: Cost,
}

/// Cost per epoch of the plan `term`. An error says why `term` is not a valid plan.
pub(crate) fn price(
    arena: &mut Arena,
    profile: &Profile,
    prices: &Coefficients,
    term: &Term,
) -> Result<Cost, String> {
    let nodes = price_each(arena, profile, prices, term)?;
    let own = nodes.iter().map(|node| node.own);
    Ok(own.fold(0, Cost::saturating_add))
}

/// Prices each node of the plan `term`, with facts that are derived from `term` without an e-graph.
/// An error says why `term` is not a valid plan.
pub(crate) fn price_each(
    arena: &mut Arena,
    profile: &Profile,
    prices: &Coefficients,
    term: &Term,
) -> Result<Vec<NodePrice>, String> {
    let mut priced = Vec::with_capacity(term.len());
    let mut facts: Vec<Fact> = Vec::with_capacity(term.len());
    for node in term.iter() {
        let found = fact(arena, profile, node, |id| facts.get(usize::from(id)))?;
        let mut own = 0;
        if let Fact::Plan(out) = &found {
            let of = |id: Id| match &facts[usize::from(id)] {
                Fact::Plan(plan) => Some(plan.as_ref()),
                _ => None,
            };
            let param = node
                .children()
                .first()
                .and_then(|&id| match facts[usize::from(id)] {
                    Fact::Param(param) => Some(param),
                    _ => None,
                });
            own = self_cost(arena, prices, node, out, param, of);
        }
        let fact = match &found {
            Fact::Plan(plan) => Some(Arc::clone(plan)),
            _ => None,
        };
        priced.push(NodePrice { fact, own });
        facts.push(found);
    }
    Ok(priced)
}

/// Prices each node of the plan `term` with the facts of the node's class in `graph`. `None` if
/// `graph` does not contain `term`.
pub(crate) fn price_in(
    graph: &PlanGraph,
    prices: &Coefficients,
    term: &Term,
) -> Option<Vec<NodePrice>> {
    let ids = graph.lookup_expr_ids(term)?;
    let nodes = term.iter().zip(&ids).map(|(node, &class)| {
        let node = node.clone().map_children(|child| ids[usize::from(child)]);
        NodePrice {
            fact: plan_fact(graph, class).map(Arc::clone),
            own: own(graph, prices, class, &node),
        }
    });
    Some(nodes.collect())
}

/// Cost per epoch of `node`, a node of `class`, without the cost of its inputs.
pub(crate) fn own(graph: &PlanGraph, prices: &Coefficients, class: Id, node: &Node) -> Cost {
    let param = match node {
        Node::Param(_) | Node::LiveSlots(_) => return 0,
        Node::Op([param, _, _]) => param_of(graph, *param),
        _ => None,
    };
    let fact = |id: Id| plan_fact(graph, id).map(AsRef::<PlanFact>::as_ref);
    let Some(out) = fact(class) else {
        return Cost::MAX;
    };
    self_cost(&graph.analysis.arena, prices, node, out, param, fact)
}
