//! How the chosen plan came of the written one, step by step.

use egg::{FlatTerm, Id, Language};

use super::plan::{inputs, node_text};
use super::text;
use super::why_not::tier_of;
use crate::optimizer::arena::{Arena, ParamId};
use crate::optimizer::cost::Cost;
use crate::optimizer::graph::PlanGraph;
use crate::optimizer::lang::{Node, Term};
use crate::optimizer::lower::Lowered;
use crate::optimizer::rules::{Site, Tier};
use crate::optimizer::tree::Tree;
use crate::optimizer::{Config, Report, extract, sort};

/// What EXPLAIN calls the choice of a place whose rows are kept.
pub const CACHE: &str = "cache";

/// A step, or several in a row that cost nothing and gain nothing.
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
    /// The operators above and below before the step; those of a plan in new order are many.
    pub site: Option<(String, String)>,
    /// What all epochs cost before.
    pub before: Cost,
    /// What all epochs cost after.
    pub after: Cost,
}

impl Step {
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
        lowered: &Lowered,
        config: &Config,
        report: &Report,
        start: &Term,
        chosen: &Term,
    ) -> Result<Self, String> {
        let epochs = Cost::from(config.cache.epochs);
        let mut derivation = Self::default();
        let mut before = report.written;
        let arena = &mut graph.analysis.arena;
        let (rules, wanted) = (config.rules(), lowered.wanted());
        let mut tree = lowered.tree.clone();
        for &(name, site) in &report.before {
            let rule = rules.iter().find(|rule| rule.name == name);
            let verdict = rule.and_then(|rule| (rule.apply)(arena, site));
            match verdict {
                Some(Ok(ops)) if replace(&mut tree, site, &ops) => {}
                _ => return Err(format!("{name} cannot be applied again")),
            }
            let term = tree.term(arena, &wanted);
            let after = extract::price(arena, &config.prices, &term)?.saturating_mul(epochs);
            derivation.push(Step {
                rules: vec![name],
                count: 1,
                backwards: false,
                tier: tier_of(name),
                site: Some((text(arena, site.outer), text(arena, site.inner))),
                before,
                after,
            });
            before = after;
        }
        let mut proof = graph.explain_equivalence(start, chosen);
        let arena = &mut graph.analysis.arena;
        for pair in proof.make_flat_explanation().windows(2) {
            let [from, to] = pair else { continue };
            let Some(rewrite) = Rewrite::of(to) else {
                continue;
            };
            let mut term = Term::default();
            add(to, &mut term);
            let after = extract::price(arena, &config.prices, &term)?.saturating_mul(epochs);
            let whole = rewrite.rule == sort::NAME;
            derivation.push(Step {
                rules: vec![rewrite.rule],
                count: 1,
                backwards: rewrite.backwards,
                // It is made of swaps that the allowed tiers have.
                tier: if whole {
                    config.tier
                } else {
                    tier_of(rewrite.rule)
                },
                site: (!whole).then(|| site(arena, from, &rewrite.path)).flatten(),
                before,
                after,
            });
            before = after;
        }
        Ok(derivation)
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
