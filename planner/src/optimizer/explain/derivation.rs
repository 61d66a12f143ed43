//! How the chosen plan came of the written one, step by step.

use egg::{FlatTerm, Id, Language};

use super::plan::{inputs, node_text};
use super::sorting::Move;
use super::text;
use super::why_not::tier_of;
use crate::optimizer::arena::{Arena, ParamId};
use crate::optimizer::cost::Cost;
use crate::optimizer::graph::PlanGraph;
use crate::optimizer::lang::{Node, Term};
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
    /// The steps before the search, then the proof that `chosen` is equal to its `start`.
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
        let mut proof = graph.explain_equivalence(start, chosen);
        let arena = &mut graph.analysis.arena;
        for pair in proof.make_flat_explanation().windows(2) {
            let [from, to] = pair else { continue };
            let Some(rewrite) = Rewrite::of(to) else {
                continue;
            };
            if let (sort::NAME, Some(moves)) = (rewrite.rule, &told.sorting) {
                cost = derivation.sorted(arena, told, moves, cost)?;
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

    /// The step to the sorted plan, as a step per operator that is moved; what the plan costs then.
    fn sorted(
        &mut self,
        arena: &mut Arena,
        told: &Told<'_>,
        moves: &[Move],
        mut cost: Cost,
    ) -> Result<Cost, String> {
        let mut tree = told.normal.clone();
        for swaps in moves {
            for &(rule, site) in swaps {
                if !replace(&mut tree, site, &[site.outer, site.inner]) {
                    return Err(format!("{rule} cannot be applied again"));
                }
            }
            let after = told.tree_cost(arena, &tree)?;
            self.push(Step::of(arena, swaps, cost, after));
            cost = after;
        }
        Ok(cost)
    }

    /// The last step: that the rows of an operator are kept.
    pub(super) fn cached(&mut self, operator: String, before: Cost, after: Cost) {
        self.push(Step {
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
                last.tier = last.tier.max(step.tier);
                last.site = None;
            }
            _ => self.steps.push(step),
        }
    }

    /// The number of steps, each of those taken together counted.
    pub fn count(&self) -> usize {
        self.steps.iter().map(|step| step.count).sum()
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

/// What a step of a proof did, and where.
struct Rewrite {
    rule: &'static str,
    backwards: bool,
    /// Which child of which child is rewritten, from the root.
    path: Vec<usize>,
}

impl Rewrite {
    fn of(term: &FlatTerm<Node>) -> Option<Self> {
        let here = |rule: egg::Symbol, backwards| Self {
            rule: rule.as_str(),
            backwards,
            path: Vec::new(),
        };
        if let Some(rule) = term.forward_rule {
            return Some(here(rule, false));
        }
        if let Some(rule) = term.backward_rule {
            return Some(here(rule, true));
        }
        let mut children = term.children.iter().enumerate();
        children.find_map(|(index, child)| {
            let mut found = Self::of(child)?;
            found.path.insert(0, index);
            Some(found)
        })
    }
}

/// The operators above and below at a path.
fn site(arena: &Arena, term: &FlatTerm<Node>, path: &[usize]) -> Option<(String, String)> {
    let above = path
        .iter()
        .try_fold(term, |at, &index| at.children.get(index))?;
    let below = inputs(&above.node).len();
    let below = &above.children[above.children.len() - below..];
    Some((flat_text(arena, above), flat_text(arena, below.first()?)))
}

fn flat_text(arena: &Arena, term: &FlatTerm<Node>) -> String {
    match term.children.first() {
        Some(first) => node_text(arena, &term.node, |_| &first.node),
        None => node_text(arena, &term.node, |_| &term.node),
    }
}

/// Adds a term of a proof to a plain one.
fn add(flat: &FlatTerm<Node>, term: &mut Term) -> Id {
    let children = flat.children.iter();
    let ids: Vec<Id> = children.map(|child| add(child, term)).collect();
    let mut ids = ids.into_iter();
    let node = flat.node.clone();
    term.add(node.map_children(|child| ids.next().unwrap_or(child)))
}
