//! The steps by which the rules rewrite the written plan to the chosen plan.

use super::rewrite::{Rewrite, add, site};
use super::sorting::Move;
use crate::optimizer::always_rules::Applied;
use crate::optimizer::arena::Arena;
use crate::optimizer::config::Config;
use crate::optimizer::cost::Cost;
use crate::optimizer::graph::PlanGraph;
use crate::optimizer::ids::ParamId;
use crate::optimizer::initial_order;
use crate::optimizer::lang::Term;
use crate::optimizer::lower::Lowered;
use crate::optimizer::price::price;
use crate::optimizer::profile::Profile;
use crate::optimizer::rules::{Rule, Site, Tier, tier_of};
use crate::optimizer::tree::OperatorTree;

/// The name that stands in place of a rule's name for the step that adds the cache point.
pub const CACHE: &str = "cache";

/// The state of a finished search from which the derivation is built.
pub(super) struct Told<'a> {
    pub(super) lowered: &'a Lowered,
    pub(super) config: &'a Config,
    pub(super) profile: &'a Profile,
    pub(super) rules: &'a [Rule],
    /// The applications of rules before the search, in order.
    pub(super) before: &'a [Applied],
    /// The plan after the rewrites in `before`, from which the search started.
    pub(super) normal: OperatorTree,
    /// The moves of operators that turn `normal` into the sorted plan, from which the search also
    /// started; `None` if no such moves were found.
    pub(super) sorting: Option<Vec<Move>>,
    /// The moves of operators that turn `normal` into the chosen plan; `None` if the two differ in
    /// more than the order of operators.
    pub(super) direct: Option<Vec<Move>>,
    /// Cost of all epochs of the written plan.
    pub(super) written: Cost,
}

impl Told<'_> {
    fn cost(&self, arena: &mut Arena, term: &Term) -> Result<Cost, String> {
        let epoch = price(arena, self.profile, &self.config.prices, term)?;
        Ok(epoch.saturating_mul(self.config.cache.epochs.into()))
    }

    fn tree_cost(&self, arena: &mut Arena, tree: &OperatorTree) -> Result<Cost, String> {
        let term = tree.term(arena, &self.lowered.wanted());
        self.cost(arena, &term)
    }

    /// Applies `moves` to the plan `normal`, whose cost is `cost`. Returns a step for each move,
    /// and the plan after all moves. `None` if two operators to swap are not adjacent. That happens
    /// if the same two operators occur several times in the plan, and an earlier swap was applied
    /// to another occurrence.
    fn moved(
        &self,
        arena: &mut Arena,
        moves: &[Move],
        mut cost: Cost,
    ) -> Result<Option<(Vec<DerivationStep>, OperatorTree)>, String> {
        let mut tree = self.normal.clone();
        let mut steps = Vec::with_capacity(moves.len());
        for swaps in moves {
            for &(_, site) in swaps {
                if !replace(&mut tree, site, &[site.outer, site.inner]) {
                    return Ok(None);
                }
            }
            let after = self.tree_cost(arena, &tree)?;
            steps.push(DerivationStep::of(arena, swaps, cost, after));
            cost = after;
        }
        Ok(Some((steps, tree)))
    }
}

/// A step of a derivation: one application of a rule, a move of an operator past several others, or
/// several consecutive steps that do not change the cost, merged into one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivationStep {
    /// The names of the rules that the step applies, without duplicates.
    pub rules: Vec<&'static str>,
    /// The number of times that the step applies a rule.
    pub count: usize,
    /// True if the step applies its rules in reverse, so that the rule's result is rewritten to
    /// what the rule matches.
    pub backwards: bool,
    /// The highest tier among the rules that the step applies.
    pub tier: Tier,
    /// The texts of the upper and the lower operator that the step's last application of a rule
    /// rewrites. `None` for several merged steps.
    pub site: Option<(String, String)>,
    /// Cost of all epochs before the step.
    pub before: Cost,
    /// Cost of all epochs after the step.
    pub after: Cost,
}

impl DerivationStep {
    /// Creates the step that applies `swaps`, each of which rewrites two adjacent operators.
    /// `before` and `after` are the costs of all epochs.
    fn of(arena: &Arena, swaps: &[(&'static str, Site)], before: Cost, after: Cost) -> Self {
        let mut rules: Vec<&'static str> = Vec::new();
        for &(rule, _) in swaps {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        let tiers = rules.iter().map(|rule| tier_of(rule));
        let lowest = swaps.last().map(|&(_, site)| site);
        Self {
            tier: tiers.max().unwrap_or_default(),
            rules,
            count: swaps.len(),
            backwards: false,
            site: lowest.map(|site| {
                (
                    arena.spec(site.outer).shown(),
                    arena.spec(site.inner).shown(),
                )
            }),
            before,
            after,
        }
    }

    /// True if the step does not change the cost.
    fn is_idle(&self) -> bool {
        self.before == self.after
    }
}

/// The derivation of the chosen plan from the written one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Derivation {
    /// The steps in order. Consecutive steps that do not change the cost are merged into one.
    pub steps: Vec<DerivationStep>,
}

impl Derivation {
    /// Builds the derivation. The first steps are the rewrites before the search, which lead to the
    /// plan `start`. The other steps lead from `start` to `chosen`. They are moves of operators if
    /// the two plans differ only in the order of operators, and otherwise the steps of egg's proof
    /// that the plans are equal. Such a proof has more steps than there are moves.
    pub(super) fn new(
        graph: &mut PlanGraph,
        told: &Told<'_>,
        start: &Term,
        chosen: &Term,
    ) -> Result<Self, String> {
        let mut derivation = Self::default();
        let mut tree = told.lowered.tree.clone();
        let mut cost = told.written;
        let arena = &mut graph.analysis.arena;
        for &(name, site) in told.before {
            let rule = told.rules.iter().find(|rule| rule.name == name);
            let verdict = rule.and_then(|rule| (rule.apply)(arena, site));
            match verdict {
                Some(Ok(ops)) if replace(&mut tree, site, &ops) => {}
                _ => {
                    return Err(format!(
                        "the rule {name} cannot be applied again as before the search"
                    ));
                }
            }
            let after = told.tree_cost(arena, &tree)?;
            let applied = DerivationStep::of(arena, &[(name, site)], cost, after);
            derivation.push(applied);
            cost = after;
        }
        if tree != told.normal {
            return Err(
                "the rules before the search do not lead to the plan from which it started"
                    .to_owned(),
            );
        }
        if let Some(moves) = &told.direct
            && let Some((steps, moved)) = told.moved(arena, moves, cost)?
            && moved.term(arena, &told.lowered.wanted()) == *chosen
        {
            steps.into_iter().for_each(|step| derivation.push(step));
            return Ok(derivation);
        }
        let mut proof = graph.explain_equivalence(start, chosen);
        let arena = &mut graph.analysis.arena;
        for pair in proof.make_flat_explanation().windows(2) {
            let [from, to] = pair else { continue };
            let Some(rewrite) = Rewrite::of(to) else {
                continue;
            };
            if let (initial_order::NAME, false, Some(moves)) =
                (rewrite.rule, rewrite.backwards, &told.sorting)
                && let Some((steps, _)) = told.moved(arena, moves, cost)?
            {
                cost = steps.last().map_or(cost, |step| step.after);
                steps.into_iter().for_each(|step| derivation.push(step));
                continue;
            }
            let mut term = Term::default();
            add(to, &mut term);
            let after = told.cost(arena, &term)?;
            derivation.push(DerivationStep {
                rules: vec![rewrite.rule],
                count: 1,
                backwards: rewrite.backwards,
                // The step that sorts operators may apply rules of any allowed tier, so its tier is
                // the highest allowed tier.
                tier: match rewrite.rule {
                    initial_order::NAME => told.config.tier,
                    rule => tier_of(rule),
                },
                site: site(arena, from, &rewrite.path),
                before: cost,
                after,
            });
            cost = after;
        }
        Ok(derivation)
    }

    /// Adds the last step, which caches the rows of `operator`. `written` is the cost of the
    /// written plan, and `after` the cost with the cache.
    pub(super) fn cached(&mut self, operator: String, written: Cost, after: Cost) {
        let before = self.steps.last().map_or(written, |step| step.after);
        self.steps.push(DerivationStep {
            rules: vec![CACHE],
            count: 1,
            backwards: false,
            tier: Tier::Exact,
            site: Some((CACHE.to_owned(), operator)),
            before,
            after,
        });
    }

    fn push(&mut self, step: DerivationStep) {
        match self.steps.last_mut() {
            Some(last) if last.is_idle() && step.is_idle() => {
                for rule in step.rules {
                    if !last.rules.contains(&rule) {
                        last.rules.push(rule);
                    }
                }
                last.count += step.count;
                last.backwards &= step.backwards;
                last.tier = last.tier.max(step.tier);
                last.site = None;
            }
            _ => self.steps.push(step),
        }
    }

    /// The number of times that the derivation applies a rule. The step that adds the cache point
    /// does not count.
    pub fn rewrites(&self) -> usize {
        let steps = self.steps.iter().filter(|step| step.rules != [CACHE]);
        steps.map(|step| step.count).sum()
    }
}

/// Replaces the lowest occurrence of the two operators of `site` in `tree` by `ops`, lowest first.
/// Returns false if `tree` does not contain the two operators.
fn replace(tree: &mut OperatorTree, site: Site, ops: &[ParamId]) -> bool {
    let below = match tree {
        OperatorTree::Scan(_) => false,
        OperatorTree::Op(_, input) | OperatorTree::Cache(input) => replace(input, site, ops),
        OperatorTree::Cat(inputs) => inputs.iter_mut().any(|input| replace(input, site, ops)),
        OperatorTree::Mix(arms) => arms.iter_mut().any(|arm| replace(arm, site, ops)),
    };
    if below {
        return true;
    }
    let input = match tree {
        OperatorTree::Op(outer, input) if *outer == site.outer => match input.as_ref() {
            OperatorTree::Op(inner, input) if *inner == site.inner => input.as_ref().clone(),
            _ => return false,
        },
        _ => return false,
    };
    *tree = ops.iter().copied().fold(input, OperatorTree::then);
    true
}
