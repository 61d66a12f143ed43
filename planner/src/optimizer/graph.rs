//! The e-graph of a plan: what is known of each class, and when that is contradictory.

use std::collections::HashMap;
use std::sync::Arc;

use egg::{Analysis, DidMerge, EGraph, Id, Language};

use super::arena::{Arena, ParamId};
use super::facts::{Fact, PlanFact, either, fact};
use super::lang::{Node, Term};

/// What the e-graph knows beside its nodes.
#[derive(Debug)]
pub struct Knowledge {
    /// What its leaves stand for.
    pub arena: Arena,
    /// Columns of all classes that were made.
    pub columns: usize,
    /// Why the graph must not be believed: two plans of one class do not have the same columns.
    pub poisoned: Option<String>,
}

impl Analysis<Node> for Knowledge {
    type Data = Option<Fact>;

    fn make(egraph: &mut EGraph<Node, Self>, node: &Node, _: Id) -> Self::Data {
        let of: HashMap<Id, Fact> = node
            .children()
            .iter()
            .filter_map(|&id| Some((id, egraph[id].data.clone()?)))
            .collect();
        match fact(&mut egraph.analysis.arena, node, |id| of.get(&id)) {
            Ok(fact) => {
                if let Fact::Plan(plan) = &fact {
                    egraph.analysis.columns += plan.columns.len();
                }
                Some(fact)
            }
            Err(why) => {
                egraph.analysis.poisoned.get_or_insert(why);
                None
            }
        }
    }

    fn merge(&mut self, a: &mut Self::Data, b: Self::Data) -> DidMerge {
        match (a.as_mut(), b) {
            (Some(Fact::Plan(a)), Some(Fact::Plan(b))) => {
                if !a.agrees(&b) {
                    let why = "two plans of one class have different columns".to_owned();
                    self.poisoned.get_or_insert(why);
                    return DidMerge(false, false);
                }
                let joined = join(a, &b);
                let changed = DidMerge(joined != **a, joined != *b);
                *a = Arc::new(joined);
                changed
            }
            (Some(Fact::Param(a)), Some(Fact::Param(b))) if *a == b => DidMerge(false, false),
            (Some(Fact::Keep(a)), Some(Fact::Keep(b))) if *a == b => DidMerge(false, false),
            _ => {
                let why = "a plan and an operator in one class".to_owned();
                self.poisoned.get_or_insert(why);
                DidMerge(false, false)
            }
        }
    }
}

/// The lower of each estimate.
fn join(a: &PlanFact, b: &PlanFact) -> PlanFact {
    let mut joined = a.clone();
    joined.rows = a.rows.min(b.rows);
    joined.pool = a.pool.min(b.pool);
    joined.draws = either(a.draws, b.draws);
    joined.unaddressed = either(a.unaddressed, b.unaddressed);
    for (column, other) in joined.columns.values_mut().zip(b.columns.values()) {
        column.bytes = column.bytes.min(other.bytes);
        column.stored = column.stored.filter(|_| column.stored == other.stored);
    }
    joined
}

/// The e-graph of a plan.
pub type PlanGraph = EGraph<Node, Knowledge>;

/// The operator that a class of leaves names.
pub fn param_of(graph: &PlanGraph, id: Id) -> Option<ParamId> {
    match graph[id].data {
        Some(Fact::Param(param)) => Some(param),
        _ => None,
    }
}

/// What is known of a class of plans.
pub fn plan_fact(graph: &PlanGraph, id: Id) -> Option<&Arc<PlanFact>> {
    match &graph[id].data {
        Some(Fact::Plan(plan)) => Some(plan),
        _ => None,
    }
}

/// Whether two classes of plans have the same columns.
pub fn agree(graph: &PlanGraph, a: Id, b: Id) -> bool {
    match (plan_fact(graph, a), plan_fact(graph, b)) {
        (Some(a), Some(b)) => a.agrees(b),
        _ => false,
    }
}

/// Operators of a plan up to which egg looks for short proofs; beyond, that takes longer than the search.
const SHORT_PROOFS: usize = 15;

/// Adds a plan to an empty graph, which keeps `proofs` of what it finds equal.
pub fn plant(arena: Arena, term: &Term, proofs: bool) -> (PlanGraph, Id) {
    let knowledge = Knowledge {
        arena,
        columns: 0,
        poisoned: None,
    };
    let mut graph = PlanGraph::new(knowledge);
    if proofs {
        graph = graph.with_explanations_enabled();
        let operators = term.iter().filter(|node| matches!(node, Node::Op(_)));
        if operators.count() > SHORT_PROOFS {
            graph = graph.without_explanation_length_optimization();
        }
    }
    let root = graph.add_expr(term);
    graph.rebuild();
    (graph, root)
}
