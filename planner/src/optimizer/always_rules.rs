//! Applies, before the search, the rules that never make a plan worse.

use super::arena::Arena;
use super::ids::ParamId;
use super::rules::{Rule, Site};
use super::tree::OperatorTree;

/// The name of a rule that was applied, and the two operators that the rule rewrote.
pub(crate) type Applied = (&'static str, Site);

/// Applies the rules of `rules` that are marked `always` to `tree`, and adds each application to
/// `applied`.
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

/// Puts the operator `outer` on top of `input`, a plan in which no rule matches any more. Then
/// applies the rules to `outer` and the operators below `outer`.
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
