//! Applies the rules that improve every plan, before the search.

use super::arena::Arena;
use super::ids::ParamId;
use super::rules::{Rule, Site};
use super::tree::OperatorTree;

/// A rule that was applied: its name, and the upper and lower operator as they were before.
pub(crate) type Applied = (&'static str, Site);

/// Applies the rules that always pay, and records them in `applied`.
pub(crate) fn always_rules(
    arena: &mut Arena,
    rules: &[Rule],
    tree: OperatorTree,
    applied: &mut Vec<Applied>,
) -> OperatorTree {
    match tree {
        OperatorTree::Scan(_) => tree,
        OperatorTree::Op(param, input) => {
            let input = always_rules(arena, rules, *input, applied);
            push(arena, rules, param, input, applied)
        }
        OperatorTree::Cache(input) => {
            OperatorTree::Cache(Box::new(always_rules(arena, rules, *input, applied)))
        }
        OperatorTree::Cat(inputs) => OperatorTree::Cat(Box::new(
            inputs.map(|t| always_rules(arena, rules, t, applied)),
        )),
        OperatorTree::Mix(arms) => {
            let arms = arms.into_iter();
            OperatorTree::Mix(
                arms.map(|t| always_rules(arena, rules, t, applied))
                    .collect(),
            )
        }
    }
}

/// Places `outer` on top of a plan to which the rules have been applied, and applies the rules to
/// `outer` and the operators below it.
fn push(
    arena: &mut Arena,
    rules: &[Rule],
    outer: ParamId,
    input: OperatorTree,
    applied: &mut Vec<Applied>,
) -> OperatorTree {
    let OperatorTree::Op(inner, below) = input else {
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
