//! Brings the operators of a plan into the order of another plan, by swaps of adjacent operators.

use crate::optimizer::arena::Arena;
use crate::optimizer::ids::ParamId;
use crate::optimizer::rules::{Rule, Site};
use crate::optimizer::tree::OperatorTree;

/// A move of one operator down past other operators, as swaps of adjacent operators. Each swap has
/// the name of the rule that allows it.
pub(super) type Move = Vec<(&'static str, Site)>;

/// Finds the moves that bring the operators of `tree` into the order of `other`. `None` if the two
/// plans have different operators, or if `rules` do not allow one of the swaps.
pub(super) fn moves(
    arena: &mut Arena,
    rules: &[Rule],
    tree: &OperatorTree,
    other: &OperatorTree,
) -> Option<Vec<Move>> {
    let ((mut ops, base), (wanted, other_base)) = (chain(tree), chain(other));
    if ops.len() != wanted.len() {
        return None;
    }
    let mut found = match (base, other_base) {
        (OperatorTree::Cat(from), OperatorTree::Cat(to)) => {
            let mut first = moves(arena, rules, &from[0], &to[0])?;
            first.extend(moves(arena, rules, &from[1], &to[1])?);
            first
        }
        (OperatorTree::Mix(from), OperatorTree::Mix(to)) => {
            let mut all = Vec::new();
            for (from, to) in from.iter().zip(to) {
                all.extend(moves(arena, rules, from, to)?);
            }
            all
        }
        (OperatorTree::Scan(_), OperatorTree::Scan(_)) => Vec::new(),
        _ => return None,
    };
    for (place, outer) in wanted.into_iter().enumerate() {
        let from = place + ops.get(place..)?.iter().position(|&op| op == outer)?;
        let passed = ops[place..from].iter().rev();
        let swaps: Option<Move> = passed
            .map(|&inner| {
                let site = Site::of(outer, inner);
                Some((swapping(arena, rules, site)?, site))
            })
            .collect();
        ops[place..=from].rotate_right(1);
        let swaps = swaps?;
        if !swaps.is_empty() {
            found.push(swaps);
        }
    }
    Some(found)
}

/// Returns the operators at the top of `tree`, lowest first, and the source, union or mix below
/// them. Cache points are skipped.
fn chain(tree: &OperatorTree) -> (Vec<ParamId>, &OperatorTree) {
    let (mut ops, mut at) = (Vec::new(), tree);
    loop {
        at = match at {
            OperatorTree::Op(param, input) => {
                ops.push(*param);
                input
            }
            OperatorTree::Cache(input) => input,
            OperatorTree::Scan(_) | OperatorTree::Cat(_) | OperatorTree::Mix(_) => break,
        };
    }
    ops.reverse();
    (ops, at)
}

fn swapping(arena: &mut Arena, rules: &[Rule], site: Site) -> Option<&'static str> {
    let swapped = [site.outer, site.inner];
    let mut rules = rules.iter();
    let rule =
        rules.find(|rule| matches!((rule.apply)(arena, site), Some(Ok(ops)) if ops == swapped));
    rule.map(|rule| rule.name)
}
