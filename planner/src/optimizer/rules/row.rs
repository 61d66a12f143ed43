//! Rules that move row functions past each other, and past filters and lookups.

use super::conditions::{independent, not_both_fallible, swapped, unpinned};
use super::rule::{Rule, Site, Verdict};
use crate::optimizer::arena::Arena;
use crate::optimizer::spec::OpKind;

/// The rules of the family `row`.
pub const RULES: &[Rule] = &[
    Rule::exact("row-swap", swap),
    Rule::exact("row-below-filter", below_filter),
    Rule::exact("row-past-lookup", past_lookup),
];

/// Swaps two functions of different slots. Random functions may move, since draws depend only on
/// the row's key. A row on which both functions raise an error reports the error of the first
/// output column, in either order.
fn swap(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    match (&f.kind, &g.kind) {
        // Two functions of the same slot are left to the families `image`, `geometry` and `affine`.
        (OpKind::Row { slot: a, .. }, OpKind::Row { slot: b, .. }) if a == b => return None,
        (above, below) if above.is_row() && below.is_row() => {}
        _ => return None,
    }
    Some(swapped(site, &[unpinned(f, g), independent(f, g)]))
}

/// Moves a function below a filter that does not read the function's slot. The function then runs
/// on more rows, which may pay if the filter copies large columns.
fn below_filter(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, p) = (arena.spec(site.outer), arena.spec(site.inner));
    if !f.kind.is_row() || !p.kind.is_filter() {
        return None;
    }
    Some(swapped(site, &[unpinned(f, p), independent(f, p)]))
}

/// Swaps a function and a lookup, in either direction, if neither reads or overwrites what the
/// other writes.
fn past_lookup(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (a, b) = (arena.spec(site.outer), arena.spec(site.inner));
    if !(a.kind.is_row() && b.kind.looks_up() || a.kind.looks_up() && b.kind.is_row()) {
        return None;
    }
    let conditions = [unpinned(a, b), independent(a, b), not_both_fallible(a, b)];
    Some(swapped(site, &conditions))
}
