//! What pays in every plan, done before the search.

use super::arena::{Arena, ParamId};
use super::rules::{Rule, Site};
use super::tree::Tree;

/// A rule that was applied: its name, and the operators above and below before it.
pub type Applied = (&'static str, Site);

/// The plan after the rules that always pay, which are noted in `applied`.
pub fn normal(arena: &mut Arena, rules: &[Rule], tree: Tree, applied: &mut Vec<Applied>) -> Tree {
    match tree {
        Tree::Scan(_) => tree,
        Tree::Op(param, input) => {
            let input = normal(arena, rules, *input, applied);
            push(arena, rules, param, input, applied)
        }
        Tree::Cache(input) => Tree::Cache(Box::new(normal(arena, rules, *input, applied))),
        Tree::Cat(inputs) => Tree::Cat(Box::new(inputs.map(|t| normal(arena, rules, t, applied)))),
        Tree::Mix(arms) => {
            let arms = arms.into_iter();
            Tree::Mix(arms.map(|t| normal(arena, rules, t, applied)).collect())
        }
        Tree::Zip(inputs, second) => {
            let inputs = inputs.map(|t| normal(arena, rules, t, applied));
            Tree::Zip(Box::new(inputs), second)
        }
    }
}

/// An operator over a plan to which the rules have been applied.
fn push(
    arena: &mut Arena,
    rules: &[Rule],
    outer: ParamId,
    input: Tree,
    applied: &mut Vec<Applied>,
) -> Tree {
    let Tree::Op(inner, below) = input else {
        return input.then(outer);
    };
    let site = Site::of(outer, inner);
    for rule in rules.iter().filter(|rule| rule.always) {
        if let Some(Ok(ops)) = (rule.apply)(arena, site) {
            applied.push((rule.name, site));
            let mut tree = *below;
            for op in ops {
                tree = push(arena, rules, op, tree, applied);
            }
            return tree;
        }
    }
    below.then(inner).then(outer)
}
