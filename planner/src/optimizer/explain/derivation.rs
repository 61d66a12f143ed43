//! The derivation of the chosen plan from the written one, step by step.

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

/// Name, in place of a rule's, of the step that chooses a cache point.
pub const CACHE: &str = "cache";

/// The facts about a search from which its derivation is built.
pub(super) struct Told<'a> {
    pub(super) lowered: &'a Lowered,
    pub(super) config: &'a Config,
    pub(super) profile: &'a Profile,
    pub(super) rules: &'a [Rule],
    /// The rules applied before the search, in order.
    pub(super) before: &'a [Applied],
    /// The plan after the rules in `before`, from which the search started.
    pub(super) normal: OperatorTree,
    /// The moves that sort `normal` into the sorted plan, from which the search also started.
    pub(super) sorting: Option<Vec<Move>>,
    /// The moves that sort `normal` into the chosen plan, if the two differ only in order.
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

    /// Returns a step for each move, and the plan after all moves. `None` if a swap does not fit
    /// the plan, since the same two operators occur in several places and the wrong ones were
    /// swapped.
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

/// A step of a derivation: a rule applied once, an operator moved past several others, or several
/// consecutive steps that do not change the cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivationStep {
    /// The names of the rules that the step applies.
    pub rules: Vec<&'static str>,
    /// The number of rule applications in this step.
    pub count: usize,
    /// True if the rule was applied in reverse, from its result to its input.
    pub backwards: bool,
    /// The highest tier of the step's rules.
    pub tier: Tier,
    /// The upper and lower operator before the step's last rule application. `None` for merged
    /// steps that do not change the cost.
    pub site: Option<(String, String)>,
    /// Cost of all epochs before the step.
    pub before: Cost,
    /// Cost of all epochs after the step.
    pub after: Cost,
}

impl DerivationStep {
    /// Creates the step that moves one operator past others, by `swaps` of neighbours.
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
    /// The steps in order; consecutive steps that do not change the cost are merged.
    pub steps: Vec<DerivationStep>,
}

impl Derivation {
    /// Lists the rules applied before the search, followed by the steps from the plan after these
    /// rules to the chosen plan. If the two plans differ only in order, the steps are the moved
    /// operators, which is shorter than a proof by way of other orders. Otherwise the steps come
    /// from the proof that the chosen plan is equal to `start`.
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
                _ => return Err(format!("{name} cannot be applied again")),
            }
            let after = told.tree_cost(arena, &tree)?;
            let applied = DerivationStep::of(arena, &[(name, site)], cost, after);
            derivation.push(applied);
            cost = after;
        }
        if tree != told.normal {
            return Err("the steps before the search lead elsewhere".to_owned());
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
                // Sorting may use rules of all allowed tiers.
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

    /// Adds the last step, which caches the rows of an operator.
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

    /// The number of rule applications; choosing a cache point does not count.
    pub fn rewrites(&self) -> usize {
        let steps = self.steps.iter().filter(|step| step.rules != [CACHE]);
        steps.map(|step| step.count).sum()
    }
}

/// Replaces the lowest occurrence of the two operators of `site` by `ops`. False if there is none.
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
