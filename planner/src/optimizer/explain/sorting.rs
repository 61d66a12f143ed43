//! A plan in another order, as swaps of neighbours.

use crate::optimizer::arena::{Arena, ParamId};
use crate::optimizer::rules::{Rule, Site};
use crate::optimizer::tree::Tree;

/// An operator moved down past others: the swaps, each with the rule that allows it.
pub(super) type Move = Vec<(&'static str, Site)>;

/// How the operators of a plan come into the order of another plan; `None` where that has other operators,
/// or where rules do not allow it neighbour by neighbour.
pub(super) fn moves(
    arena: &mut Arena,
    rules: &[Rule],
    tree: &Tree,
    other: &Tree,
) -> Option<Vec<Move>> {
    let ((mut ops, base), (wanted, other_base)) = (chain(tree), chain(other));
    if ops.len() != wanted.len() {
        return None;
    }
    let mut found = match (base, other_base) {
        (Tree::Cat(from), Tree::Cat(to)) | (Tree::Zip(from, _), Tree::Zip(to, _)) => {
            let mut first = moves(arena, rules, &from[0], &to[0])?;
            first.extend(moves(arena, rules, &from[1], &to[1])?);
            first
        }
        (Tree::Mix(from), Tree::Mix(to)) => {
            let mut all = Vec::new();
            for (from, to) in from.iter().zip(to) {
                all.extend(moves(arena, rules, from, to)?);
            }
            all
        }
        (Tree::Scan(_), Tree::Scan(_)) => Vec::new(),
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

/// The operators above a source, a union or a zip, the lowest first, and that. Where rows are kept is no
/// matter of order.
fn chain(tree: &Tree) -> (Vec<ParamId>, &Tree) {
    let (mut ops, mut at) = (Vec::new(), tree);
    loop {
        at = match at {
            Tree::Op(param, input) => {
                ops.push(*param);
                input
            }
            Tree::Cache(input) => input,
            Tree::Scan(_) | Tree::Cat(_) | Tree::Zip(..) | Tree::Mix(_) => break,
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
