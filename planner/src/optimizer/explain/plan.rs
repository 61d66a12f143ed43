//! A plan with the cost, the number of rows and the bytes of each operator.

use egg::Id;

use crate::optimizer::arena::Arena;
use crate::optimizer::cost::Cost;
use crate::optimizer::graph::{PlanGraph, param_of};
use crate::optimizer::lang::{Node, Term};
use crate::optimizer::plan_fact::Fact;
use crate::optimizer::price::NodePrice;
use crate::optimizer::tree::OperatorTree;

/// An operator of a plan, with its inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanNode {
    /// The operator's text, for display.
    pub text: String,
    /// Estimated number of rows per epoch that the operator yields.
    pub rows: u128,
    /// Estimated bytes of each row that the operator yields.
    pub row_bytes: u128,
    /// Cost of the operator alone, per epoch.
    pub own: Cost,
    /// Cost of the operator and everything below it, per epoch.
    pub below: Cost,
    /// True if the operator's rows are cached for later epochs.
    pub cached: bool,
    /// The operator's inputs.
    pub inputs: Vec<Self>,
}

impl PlanNode {
    /// Returns this operator and all operators below it, each before its inputs.
    pub fn operators(&self) -> Vec<&Self> {
        let below = self.inputs.iter().flat_map(Self::operators);
        [self].into_iter().chain(below).collect()
    }
}

/// A plan as a term, with the price and the facts of each node.
pub(super) struct TermWalk<'a> {
    term: &'a Term,
    priced: &'a [NodePrice],
}

impl<'a> TermWalk<'a> {
    pub(super) fn new(term: &'a Term, priced: &'a [NodePrice]) -> Self {
        Self { term, priced }
    }

    /// The nodes of the term that are plans, each after its inputs: the node's id in the term, and
    /// its price.
    pub(super) fn positions(&self) -> impl Iterator<Item = (Id, &'a NodePrice)> {
        let ids = (0..self.term.len()).map(Id::from);
        ids.zip(self.priced).filter(|(_, node)| node.fact.is_some())
    }

    /// Cost per epoch of the plan whose id in the term is `at`, including its inputs.
    pub(super) fn below(&self, at: Id) -> Cost {
        let inputs = inputs(&self.term[at]).iter().map(|&id| self.below(id));
        let own = self.priced[usize::from(at)].own;
        inputs.fold(own, Cost::saturating_add)
    }

    /// The text, for display, of the operator whose id in the term is `at`.
    pub(super) fn text(&self, arena: &Arena, at: Id) -> String {
        node_text(arena, &self.term[at], |id| &self.term[id])
    }

    /// The node of the extracted plan whose id is `at`.
    pub(super) fn node(&self, at: Id) -> &'a Node {
        &self.term[at]
    }

    /// Converts the whole term to a [`PlanNode`]. `cached` is the id of the node whose rows are
    /// cached, if any.
    pub(super) fn plan(&self, arena: &Arena, cached: Option<Id>) -> PlanNode {
        self.plan_at(arena, self.term.root(), cached)
    }

    fn plan_at(&self, arena: &Arena, at: Id, cached: Option<Id>) -> PlanNode {
        let NodePrice { fact, own } = &self.priced[usize::from(at)];
        let fact = fact.as_ref();
        let inputs = inputs(&self.term[at]).iter();
        PlanNode {
            text: self.text(arena, at),
            rows: fact.map_or(0, |fact| fact.rows.number()),
            row_bytes: fact.map_or(0, |fact| fact.live_bytes()),
            own: *own,
            below: self.below(at),
            cached: cached == Some(at),
            inputs: inputs.map(|&id| self.plan_at(arena, id, cached)).collect(),
        }
    }
}

/// The children of `node` that are plans, without the leaves that name an operator or slots.
pub(super) fn inputs(node: &Node) -> &[Id] {
    match node {
        Node::Param(_) | Node::LiveSlots(_) | Node::Scan(_) => &[],
        Node::Op(op) => &op[2..],
        Node::Cat(inputs) => inputs,
        Node::Mix(arms) => arms,
    }
}

/// Returns the text of `node` for display. `of` returns the node with an id.
pub(super) fn node_text<'a>(arena: &Arena, node: &Node, of: impl Fn(Id) -> &'a Node) -> String {
    match node {
        Node::Op([param, _, _]) => match of(*param) {
            Node::Param(param) => arena.spec(*param).shown(),
            other => other.to_string(),
        },
        Node::Scan(scan) => {
            let scan = arena.scan(*scan);
            let schema = scan.source.schema();
            let columns = scan.columns.iter();
            let names: Vec<&str> = columns
                .map(|&(index, _)| schema.field(index).name().as_str())
                .collect();
            format!(
                "scan #{} {} [{}]",
                scan.occurrence,
                scan.name,
                names.join(", ")
            )
        }
        Node::Cat(_) => "union".to_owned(),
        Node::Mix(_) => match &arena.mix {
            Some(mix) => format!("mix {mix}"),
            None => "mix".to_owned(),
        },
        Node::Param(_) | Node::LiveSlots(_) => node.to_string(),
    }
}

/// A plan found in the e-graph, as a term.
pub(super) struct Located {
    pub(super) term: Term,
    /// Id in the term of the node whose rows are cached; `None` if no rows are cached.
    pub(super) kept: Option<Id>,
}

/// Finds the plan `tree` in the class `class`. `None` if the class does not contain this plan.
pub(super) fn locate(graph: &PlanGraph, class: Id, tree: &OperatorTree) -> Option<Located> {
    let (mut nodes, mut kept) = (Vec::new(), None);
    locate_in(graph, class, tree, &mut nodes, &mut kept)?;
    let term = Term::from(nodes);
    Some(Located { term, kept })
}

fn locate_in(
    graph: &PlanGraph,
    class: Id,
    tree: &OperatorTree,
    nodes: &mut Vec<Node>,
    kept: &mut Option<Id>,
) -> Option<Id> {
    let add = |node: Node, nodes: &mut Vec<Node>| {
        nodes.push(node);
        Id::from(nodes.len() - 1)
    };
    let start = nodes.len();
    match tree {
        OperatorTree::Scan(scan) => {
            let node = Node::Scan(*scan);
            let here = graph[class].nodes.contains(&node);
            here.then(|| add(node, nodes))
        }
        OperatorTree::Cache(below) => {
            let at = locate_in(graph, class, below, nodes, kept)?;
            *kept = Some(at);
            Some(at)
        }
        OperatorTree::Op(param, below) => graph[class].nodes.iter().find_map(|node| {
            let Node::Op([p, k, input]) = node else {
                return None;
            };
            let live = match graph[*k].data {
                Some(Fact::LiveSlots(live)) if param_of(graph, *p) == Some(*param) => live,
                _ => return None,
            };
            nodes.truncate(start);
            let input = locate_in(graph, *input, below, nodes, kept)?;
            let param = add(Node::Param(*param), nodes);
            let live = add(Node::LiveSlots(live), nodes);
            Some(add(Node::Op([param, live, input]), nodes))
        }),
        OperatorTree::Mix(trees) => graph[class].nodes.iter().find_map(|node| {
            let Node::Mix(arms) = node else { return None };
            nodes.truncate(start);
            let located = arms.iter().zip(trees);
            let located = located.map(|(&arm, tree)| locate_in(graph, arm, tree, nodes, kept));
            let arms = located.collect::<Option<_>>()?;
            Some(add(Node::Mix(arms), nodes))
        }),
        OperatorTree::Cat(trees) => graph[class].nodes.iter().find_map(|node| {
            let Node::Cat(inputs) = node else { return None };
            nodes.truncate(start);
            let a = locate_in(graph, inputs[0], &trees[0], nodes, kept)?;
            let b = locate_in(graph, inputs[1], &trees[1], nodes, kept)?;
            Some(add(Node::Cat([a, b]), nodes))
        }),
    }
}
