//! Terms for proofs: the exact operators that a rule rewrote.
//!
//! A class contains many terms, and egg's proof of a union concerns the two terms whose ids were
//! united. So with proofs, the matched operators are united with their replacement over the same
//! input; without proofs, the classes are united.

use egg::Id;

use super::graph::{PlanGraph, param_of};
use super::ids::ParamId;
use super::lang::Node;
use super::matches::Match;

/// Returns the term that matched if the graph keeps proofs, and the matched class otherwise. The
/// graph must be rebuilt before, so that no class is added.
pub(super) fn matched(graph: &mut PlanGraph, found: Match) -> Id {
    let class = found.class();
    if !graph.are_explanations_enabled() {
        return class;
    }
    let term = match found {
        Match::Pair { site, input, .. } => {
            let over = |x| op_in(graph, x, site.inner, |below| graph.find(below) == input);
            let pair = op_in(graph, class, site.outer, |x| over(x).is_some());
            pair.and_then(|[p, k, x]| Some(([p, k], over(x)?)))
                .map(|([p, k], [q, l, _])| {
                    let below = graph.add_uncanonical(Node::Op([q, l, input]));
                    graph.add_uncanonical(Node::Op([p, k, below]))
                })
        }
        Match::OverCat { param, inputs, .. } => {
            let is_cat = |x| {
                let mut nodes = graph[x].nodes.iter();
                nodes.any(|node| *node == Node::Cat(inputs))
            };
            op_in(graph, class, param, is_cat).map(|[p, k, _]| {
                let cat = graph.add_uncanonical(Node::Cat(inputs));
                graph.add_uncanonical(Node::Op([p, k, cat]))
            })
        }
        Match::CatOf { param, inputs, .. } => {
            let over = |x, input| op_in(graph, x, param, |below| graph.find(below) == input);
            let both = graph[class].nodes.iter().find_map(|node| match node {
                Node::Cat([a, b]) => Some([over(*a, inputs[0])?, over(*b, inputs[1])?]),
                _ => None,
            });
            both.map(|[[p, k, _], [q, l, _]]| {
                let a = graph.add_uncanonical(Node::Op([p, k, inputs[0]]));
                let b = graph.add_uncanonical(Node::Op([q, l, inputs[1]]));
                graph.add_uncanonical(Node::Cat([a, b]))
            })
        }
    };
    term.unwrap_or(class)
}

/// Returns a node of the class that is the operator `param` over an input for which `over` is true.
fn op_in(
    graph: &PlanGraph,
    class: Id,
    param: ParamId,
    over: impl Fn(Id) -> bool,
) -> Option<[Id; 3]> {
    graph[class].nodes.iter().find_map(|node| match node {
        Node::Op(op) if param_of(graph, op[0]) == Some(param) && over(op[2]) => Some(*op),
        _ => None,
    })
}
