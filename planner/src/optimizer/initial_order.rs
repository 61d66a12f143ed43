//! A good order of a plan's operators. The search starts from both the written order and this
//! order.
//!
//! A large group of commuting operators has more orders than the e-graph can hold. So the operators
//! are sorted by rank, as is optimal for separable costs (Ibaraki and Kameda, TODS 1984;
//! Hellerstein, SIGMOD 1993). Filters come first, by cost divided by the fraction of rows dropped.
//! Then come functions that do not draw, by the bytes that they add to a row. Random functions come
//! after these, so that the rows below them can be cached.

use std::collections::{BTreeSet, HashMap};

use egg::Language;

use super::arena::Arena;
use super::coefficients::Coefficients;
use super::cost::Cost;
use super::graph::{PlanGraph, param_of, plan_fact};
use super::ids::ParamId;
use super::lang::{Node, Term};
use super::plan_fact::PlanFact;
use super::price::own;
use super::rules::{Rule, Site};
use super::spec::OpKind;
use super::tree::OperatorTree;

/// Name in EXPLAIN of the rewrite from the written order to the sorted order.
pub(crate) const NAME: &str = "sort";

/// Estimated effect of an operator on its input rows, at its position in the written plan.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Effect {
    /// Fraction of its input rows that the operator keeps.
    kept: f64,
    /// Cost per input row, in picoseconds.
    cost: f64,
    /// Number of bytes by which the operator enlarges a row; negative if it makes rows smaller.
    growth: i64,
}

/// Returns the effect of each operator of the plan `term`. The result is empty if `graph` does not
/// contain `term`.
pub(crate) fn effects(
    graph: &PlanGraph,
    prices: &Coefficients,
    term: &Term,
) -> HashMap<ParamId, Effect> {
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
        let cost: Cost = own(graph, prices, class, &node);
        let (rows, live) = (below.rows.number(), |f: &PlanFact| {
            i64::try_from(f.live_bytes()).unwrap_or(i64::MAX)
        });
        let effect = Effect {
            kept: libm::exp2(f64::from(out.rows.0 - below.rows.0) / 1024.0),
            cost: cost as f64 / (rows as f64).max(1.0),
            growth: live(out).saturating_sub(live(below)),
        };
        effects.insert(param, effect);
    }
    effects
}

/// Sorts the operators of `tree` by rank. Two operators change places only if a rule swaps them.
pub(crate) fn initial_order(
    arena: &mut Arena,
    rules: &[Rule],
    effects: &HashMap<ParamId, Effect>,
    tree: &OperatorTree,
) -> OperatorTree {
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

/// The sort key of an operator. An operator with a lower rank comes earlier, so nearer to the
/// source.
type Rank = (u8, i64);

impl Sorting<'_> {
    fn sort(&mut self, tree: &OperatorTree) -> OperatorTree {
        let mut ops = Vec::new();
        let mut at = tree;
        while let OperatorTree::Op(param, input) = at {
            ops.push(*param);
            at = input;
        }
        ops.reverse();
        let base = match at {
            OperatorTree::Cat(inputs) => {
                OperatorTree::Cat(Box::new(inputs.each_ref().map(|input| self.sort(input))))
            }
            OperatorTree::Mix(arms) => {
                OperatorTree::Mix(arms.iter().map(|arm| self.sort(arm)).collect())
            }
            OperatorTree::Cache(input) => OperatorTree::Cache(Box::new(self.sort(input))),
            other => other.clone(),
        };
        let sorted = self.schedule(ops);
        sorted.into_iter().fold(base, OperatorTree::then)
    }

    /// Sorts `ops`, the lowest operator first. Repeatedly picks the operator of the lowest rank
    /// among those that can pass all remaining operators below them.
    fn schedule(&mut self, ops: Vec<ParamId>) -> Vec<ParamId> {
        // `blocks[i]` has the operators above operator `i` that cannot pass operator `i`.
        // `blocked[i]` is the number of remaining operators below operator `i` that operator `i`
        // cannot pass.
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
        // The lowest remaining operator is never blocked, so at least one operator can always be
        // picked.
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
