//! A first guess at a good order, from which the search starts beside the written one.
//!
//! A large group of operators that all commute has more orders than a search can hold. Operators are
//! sorted by what makes the classical optimum where costs are separable (rank ordering: Ibaraki and
//! Kameda, TODS 1984; Hellerstein, SIGMOD 1993): filters first, by cost over the part of the rows
//! dropped; then functions, those that shrink rows before those that swell them; random ones last, so
//! that what does not draw can be cached.

use std::collections::{BTreeSet, HashMap};

use egg::Language;

use super::arena::{Arena, ParamId};
use super::coefficients::Coefficients;
use super::cost::Cost;
use super::extract;
use super::graph::{PlanGraph, param_of, plan_fact};
use super::lang::{Node, Term};
use super::rules::{Rule, Site};
use super::spec::OpKind;
use super::tree::Tree;

/// What EXPLAIN calls the step from the written order to the sorted one.
pub const NAME: &str = "sort";

/// What an operator does to rows where it stands in the written plan.
#[derive(Debug, Clone, Copy, Default)]
pub struct Effect {
    /// Part of the rows that it keeps.
    kept: f64,
    /// Picoseconds a row.
    cost: f64,
    /// Bytes that a row grows by.
    growth: i64,
}

/// The effects of a term's operators.
pub fn effects(graph: &PlanGraph, prices: &Coefficients, term: &Term) -> HashMap<ParamId, Effect> {
    let mut effects = HashMap::new();
    let Some(ids) = graph.lookup_expr_ids(term) else {
        return effects;
    };
    for (index, node) in term.iter().enumerate() {
        let Node::Op([param, _, input]) = node else {
            continue;
        };
        let class = ids[index];
        let facts = (
            plan_fact(graph, class),
            plan_fact(graph, ids[usize::from(*input)]),
        );
        let (Some(param), (Some(out), Some(below))) =
            (param_of(graph, ids[usize::from(*param)]), facts)
        else {
            continue;
        };
        let node = node.clone().map_children(|child| ids[usize::from(child)]);
        let own: Cost = extract::own(graph, prices, class, &node);
        let (rows, live) = (below.rows.number(), |f: &super::facts::PlanFact| {
            i64::try_from(f.live_bytes()).unwrap_or(i64::MAX)
        });
        let effect = Effect {
            kept: libm::exp2(f64::from(out.rows.0 - below.rows.0) / 1024.0),
            cost: own as f64 / (rows as f64).max(1.0),
            growth: live(out).saturating_sub(live(below)),
        };
        effects.insert(param, effect);
    }
    effects
}

/// The plan with its operators sorted, as far as the rules let them pass each other.
pub fn sorted(
    arena: &mut Arena,
    rules: &[Rule],
    effects: &HashMap<ParamId, Effect>,
    tree: &Tree,
) -> Tree {
    let mut sorting = Sorting {
        arena,
        rules,
        effects,
        swaps: HashMap::new(),
    };
    sorting.sort(tree)
}

struct Sorting<'a> {
    arena: &'a mut Arena,
    rules: &'a [Rule],
    effects: &'a HashMap<ParamId, Effect>,
    swaps: HashMap<Site, bool>,
}

/// What is sorted by, ascending.
type Rank = (u8, i64);

impl Sorting<'_> {
    fn sort(&mut self, tree: &Tree) -> Tree {
        let mut ops = Vec::new();
        let mut at = tree;
        while let Tree::Op(param, input) = at {
            ops.push(*param);
            at = input;
        }
        ops.reverse();
        let base = match at {
            Tree::Cat(inputs) => {
                Tree::Cat(Box::new(inputs.each_ref().map(|input| self.sort(input))))
            }
            Tree::Zip(inputs, second) => {
                let inputs = inputs.each_ref().map(|input| self.sort(input));
                Tree::Zip(Box::new(inputs), second.clone())
            }
            Tree::Mix(arms) => Tree::Mix(arms.iter().map(|arm| self.sort(arm)).collect()),
            Tree::Cache(input) => Tree::Cache(Box::new(self.sort(input))),
            other => other.clone(),
        };
        let sorted = self.schedule(ops);
        sorted.into_iter().fold(base, Tree::then)
    }

    /// Of the operators that nothing left stands in the way of, the one of the lowest rank, and so on.
    fn schedule(&mut self, ops: Vec<ParamId>) -> Vec<ParamId> {
        // By operator: those above that cannot pass it, and how many below it cannot pass.
        let mut blocks = vec![Vec::new(); ops.len()];
        let mut blocked = vec![0_usize; ops.len()];
        for above in 0..ops.len() {
            for below in 0..above {
                if !self.swaps(ops[above], ops[below]) {
                    blocks[below].push(above);
                    blocked[above] += 1;
                }
            }
        }
        let ranked = |index: usize| (self.rank(ops[index]), index);
        // The lowest one always can come first, so one is free while any is left.
        let free = (0..ops.len()).filter(|&index| blocked[index] == 0);
        let mut free: BTreeSet<(Rank, usize)> = free.map(ranked).collect();
        let mut sorted = Vec::with_capacity(ops.len());
        while let Some((_, index)) = free.pop_first() {
            sorted.push(ops[index]);
            for &above in &blocks[index] {
                blocked[above] -= 1;
                if blocked[above] == 0 {
                    free.insert(ranked(above));
                }
            }
        }
        sorted
    }

    fn swaps(&mut self, outer: ParamId, inner: ParamId) -> bool {
        let site = Site::of(outer, inner);
        if let Some(&known) = self.swaps.get(&site) {
            return known;
        }
        let swapped = [outer, inner];
        let swaps = self
            .rules
            .iter()
            .any(|rule| matches!((rule.apply)(self.arena, site), Some(Ok(ops)) if ops == swapped));
        self.swaps.insert(site, swaps);
        swaps
    }

    fn rank(&self, param: ParamId) -> Rank {
        let spec = self.arena.spec(param);
        let effect = self.effects.get(&param).copied().unwrap_or_default();
        match &spec.kind {
            OpKind::Shuffle { .. } | OpKind::Take { .. } | OpKind::Limit { .. } => (0, 0),
            OpKind::Filter { .. } | OpKind::Filters(_) => {
                (1, (effect.cost / (1.0 - effect.kept).max(1e-6)) as i64)
            }
            OpKind::Lookup { .. } => (2, effect.growth),
            OpKind::Row { .. } | OpKind::Rows(_) if !spec.draws => (3, effect.growth),
            OpKind::Row { .. } | OpKind::Rows(_) => (4, effect.growth),
            OpKind::Flatten { .. } => (5, effect.growth),
            OpKind::Batch { .. } => (6, 0),
        }
    }
}
