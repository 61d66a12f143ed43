//! The e-graph of a plan, with facts about each class. Contradicting facts in one class are
//! detected.

use std::collections::HashMap;
use std::sync::Arc;

use egg::{Analysis, DidMerge, EGraph, Id, Language};

use super::arena::Arena;
use super::facts::fact;
use super::ids::ParamId;
use super::lang::{Node, Term};
use super::plan_fact::{Fact, PlanFact, either};
use super::profile::Profile;

/// Data that the e-graph holds besides its nodes.
#[derive(Debug)]
pub(crate) struct Knowledge {
    /// The operators, slots and scans to which the e-graph's leaves refer.
    pub arena: Arena,
    /// Sizes and selectivities measured on sample rows; empty if none were measured.
    pub profile: Profile,
    /// Number of columns of all classes together, including classes that were merged later.
    pub columns: usize,
    /// The contradiction found in the e-graph, if any, such as two plans of one class with
    /// different columns. The search's result is not used then.
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
        let Self { arena, profile, .. } = &mut egraph.analysis;
        match fact(arena, profile, node, |id| of.get(&id)) {
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
            (Some(Fact::LiveSlots(a)), Some(Fact::LiveSlots(b))) if *a == b => {
                DidMerge(false, false)
            }
            _ => {
                let why = "a plan and an operator in one class".to_owned();
                self.poisoned.get_or_insert(why);
                DidMerge(false, false)
            }
        }
    }
}

/// Merges the facts of two plans of one class: for each estimate, the lower of the two is used.
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
pub(crate) type PlanGraph = EGraph<Node, Knowledge>;

/// The operator that the class `id` names; `None` if the class is not a `Param` leaf.
pub(crate) fn param_of(graph: &PlanGraph, id: Id) -> Option<ParamId> {
    match graph[id].data {
        Some(Fact::Param(param)) => Some(param),
        _ => None,
    }
}

/// The facts about the plans of the class `id`; `None` if the class is a leaf that names an
/// operator or slots.
pub(crate) fn plan_fact(graph: &PlanGraph, id: Id) -> Option<&Arc<PlanFact>> {
    match &graph[id].data {
        Some(Fact::Plan(plan)) => Some(plan),
        _ => None,
    }
}

/// True if both classes are plans, and their columns have the same slots and types.
pub(crate) fn agree(graph: &PlanGraph, a: Id, b: Id) -> bool {
    match (plan_fact(graph, a), plan_fact(graph, b)) {
        (Some(a), Some(b)) => a.agrees(b),
        _ => false,
    }
}

/// Maximum number of operators of a plan for which egg searches for short proofs. For a larger
/// plan, shortening the proofs would take longer than the search for the plan.
const SHORT_PROOFS: usize = 15;

/// Creates an e-graph that contains the plan `term`, and returns the e-graph and the plan's class.
/// If `proofs` is true, the e-graph records why plans are equal.
pub(crate) fn seed_egraph(
    arena: Arena,
    profile: Profile,
    term: &Term,
    proofs: bool,
) -> (PlanGraph, Id) {
    let knowledge = Knowledge {
        arena,
        profile,
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
    rebuild(&mut graph);
    (graph, root)
}

/// Restores congruence after unions.
///
/// egg times each rebuild for its log, with the clock of quanta. Calibrating that clock takes 2 to 20 ms of the first
/// plan (200 ms at most), so egg gets a mock clock.
pub(super) fn rebuild(graph: &mut PlanGraph) {
    quanta::with_clock(&quanta::Clock::mock().0, || graph.rebuild());
}
