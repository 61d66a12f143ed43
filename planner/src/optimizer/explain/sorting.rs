//! The sorted plan, from which the search starts too, as swaps of neighbours.

use crate::optimizer::arena::{Arena, ParamId};
use crate::optimizer::rules::{Rule, Site};
use crate::optimizer::tree::Tree;

/// An operator moved down past others: the swaps, each with the rule that allows it.
pub(super) type Move = Vec<(&'static str, Site)>;

/// How the operators of a plan come into the order of the sorted one; `None` where rules do not allow
/// it neighbour by neighbour.
pub(super) fn moves(
    arena: &mut Arena,
    rules: &[Rule],
    tree: &Tree,
    sorted: &Tree,
) -> Option<Vec<Move>> {
    let ((mut ops, base), (wanted, sorted_base)) = (chain(tree), chain(sorted));
    let mut found = match (base, sorted_base) {
        (Tree::Cat(from), Tree::Cat(to)) | (Tree::Zip(from, _), Tree::Zip(to, _)) => {
            let mut first = moves(arena, rules, &from[0], &to[0])?;
            first.extend(moves(arena, rules, &from[1], &to[1])?);
            first
        }
        _ => Vec::new(),
    };
    for (place, outer) in wanted.into_iter().enumerate() {
        let from = place + ops.get(place..)?.iter().position(|&op| op == outer)?;
        let passed = ops[place..from].iter().rev();
        let swaps: Option<Move> = passed
            .map(|&inner| {
                let site = Site { outer, inner };
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

/// The operators above a source, a union or a zip, the lowest first, and that.
fn chain(tree: &Tree) -> (Vec<ParamId>, &Tree) {
    let (mut ops, mut at) = (Vec::new(), tree);
    while let Tree::Op(param, input) = at {
        ops.push(*param);
        at = input;
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
