//! How the chosen plan came of the written one, step by step.

use super::rewrite::{Rewrite, add, site};
use super::sorting::Move;
use super::text;
use super::why_not::tier_of;
use crate::optimizer::arena::{Arena, ParamId};
use crate::optimizer::cost::Cost;
use crate::optimizer::graph::PlanGraph;
use crate::optimizer::lang::Term;
use crate::optimizer::lower::Lowered;
use crate::optimizer::normal::Applied;
use crate::optimizer::rules::{Rule, Site, Tier};
use crate::optimizer::tree::Tree;
use crate::optimizer::{Config, extract, sort};

/// What EXPLAIN calls the choice of a place whose rows are kept.
pub const CACHE: &str = "cache";

/// What a derivation is made of.
pub(super) struct Told<'a> {
    pub(super) lowered: &'a Lowered,
    pub(super) config: &'a Config,
    pub(super) rules: &'a [Rule],
    /// The rules applied before the search.
    pub(super) before: &'a [Applied],
    /// What they left, from which the search started.
    pub(super) normal: Tree,
    /// How that comes into the good order from which the search started too.
    pub(super) sorting: Option<Vec<Move>>,
    /// How that comes into the order of the chosen plan, where order is all that differs.
    pub(super) direct: Option<Vec<Move>>,
    /// What all epochs of the written plan cost.
    pub(super) written: Cost,
}

impl Told<'_> {
    fn cost(&self, arena: &mut Arena, term: &Term) -> Result<Cost, String> {
        let epoch = extract::price(arena, &self.config.prices, term)?;
        Ok(epoch.saturating_mul(self.config.cache.epochs.into()))
    }

    fn tree_cost(&self, arena: &mut Arena, tree: &Tree) -> Result<Cost, String> {
        let term = tree.term(arena, &self.lowered.wanted());
        self.cost(arena, &term)
    }

    /// A step for each operator that is moved, and the plan after them; `None` where the same two operators
    /// stand in several places and the wrong ones were met.
    fn moved(
        &self,
        arena: &mut Arena,
        moves: &[Move],
        mut cost: Cost,
    ) -> Result<Option<(Vec<Step>, Tree)>, String> {
        let mut tree = self.normal.clone();
        let mut steps = Vec::with_capacity(moves.len());
        for swaps in moves {
            for &(_, site) in swaps {
                if !replace(&mut tree, site, &[site.outer, site.inner]) {
                    return Ok(None);
                }
            }
            let after = self.tree_cost(arena, &tree)?;
            steps.push(Step::of(arena, swaps, cost, after));
            cost = after;
        }
        Ok(Some((steps, tree)))
    }
}

/// A rule applied once; or an operator moved past several others, or several steps in a row that cost
/// nothing and gain nothing, taken together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The rules of the step or of the steps.
    pub rules: Vec<&'static str>,
    /// How many steps.
    pub count: usize,
    /// Whether it is the rule the other way round.
    pub backwards: bool,
    /// How far it may change the stream.
    pub tier: Tier,
    /// The operators above and below before the step, of several the last; those of steps without a gain
    /// are not told.
    pub site: Option<(String, String)>,
    /// What all epochs cost before.
    pub before: Cost,
    /// What all epochs cost after.
    pub after: Cost,
}

impl Step {
    /// One operator past one or several others.
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
            site: lowest.map(|site| (text(arena, site.outer), text(arena, site.inner))),
            before,
            after,
        }
    }

    /// Whether it costs nothing and gains nothing.
    fn is_idle(&self) -> bool {
        self.before == self.after
    }
}

/// The steps from the written plan to the chosen one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Derivation {
    /// The steps, those of no change taken together.
    pub steps: Vec<Step>,
}

impl Derivation {
    /// The steps before the search, then those to the chosen plan: operators moved where that is all, which
    /// is shorter than a proof by way of other orders; else the proof that it is equal to the search's `start`.
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
            let applied = Step::of(arena, &[(name, site)], cost, after);
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
            if let (sort::NAME, false, Some(moves)) =
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
            derivation.push(Step {
                rules: vec![rewrite.rule],
                count: 1,
                backwards: rewrite.backwards,
                // Sorting takes what the allowed tiers have.
                tier: match rewrite.rule {
                    sort::NAME => told.config.tier,
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

    /// The last step: that the rows of an operator are kept.
    pub(super) fn cached(&mut self, operator: String, written: Cost, after: Cost) {
        let before = self.steps.last().map_or(written, |step| step.after);
        self.steps.push(Step {
            rules: vec![CACHE],
            count: 1,
            backwards: false,
            tier: Tier::Exact,
            site: Some((CACHE.to_owned(), operator)),
            before,
            after,
        });
    }

    fn push(&mut self, step: Step) {
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

    /// How often rules were applied; the choice of a cache is none.
    pub fn rewrites(&self) -> usize {
        let steps = self.steps.iter().filter(|step| step.rules != [CACHE]);
        steps.map(|step| step.count).sum()
    }
}

/// Replaces the lowest place of two operators.
fn replace(tree: &mut Tree, site: Site, ops: &[ParamId]) -> bool {
    let below = match tree {
        Tree::Scan(_) => false,
        Tree::Op(_, input) | Tree::Cache(input) => replace(input, site, ops),
        Tree::Cat(inputs) | Tree::Zip(inputs, _) => {
            inputs.iter_mut().any(|input| replace(input, site, ops))
        }
        Tree::Mix(arms) => arms.iter_mut().any(|arm| replace(arm, site, ops)),
    };
    if below {
        return true;
    }
    let input = match tree {
        Tree::Op(outer, input) if *outer == site.outer => match input.as_ref() {
            Tree::Op(inner, input) if *inner == site.inner => input.as_ref().clone(),
            _ => return false,
        },
        _ => return false,
    };
    *tree = ops.iter().copied().fold(input, Tree::then);
    true
}
