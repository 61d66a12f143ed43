//! Finds the exact term that a rule rewrote, so that EXPLAIN's proof shows this term.
//!
//! A class contains many terms, but egg's proof that two classes are equal shows the two terms
//! whose ids were united. So if proofs are recorded, the term of the matched operators is united
//! with the term that replaces these operators. If not, the matched class is united with that term.

use egg::Id;

use super::graph::{PlanGraph, param_of};
use super::ids::ParamId;
use super::lang::Node;
use super::matches::Match;

/// Returns the id of the matched term if the graph records proofs, and the matched class otherwise.
/// The caller must rebuild the graph first, so that the matched term is found in the graph and no
/// class is added.
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

/// Returns the children of a node in `class` that applies the operator `param` to an input for
/// which `over` is true.
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
