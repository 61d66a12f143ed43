//! Row functions past each other, and past filters.

use super::{Arena, Rule, Site, Verdict, independent, not_both_fallible, swapped, unpinned};
use crate::optimizer::spec::OpKind;

/// The family's rules.
pub const RULES: &[Rule] = &[
    Rule::exact("row-swap", swap),
    Rule::exact("row-below-filter", below_filter),
    Rule::exact("row-past-lookup", past_lookup),
];

/// Two functions of different slots. Draws follow the row, so random ones move too; of a row on which
/// both fail, the error of the first output column is reported, in either order.
fn swap(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    match (&f.kind, &g.kind) {
        // Functions of one slot are the image family's.
        (OpKind::Row { slot: a, .. }, OpKind::Row { slot: b, .. }) if a == b => return None,
        (above, below) if above.is_row() && below.is_row() => {}
        _ => return None,
    }
    Some(swapped(site, &[unpinned(f, g), independent(f, g)]))
}

/// A function below a filter that does not read its slot: it runs on more rows, which may pay where
/// the filter copies large columns.
fn below_filter(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, p) = (arena.spec(site.outer), arena.spec(site.inner));
    if !f.kind.is_row() || !p.kind.is_filter() {
        return None;
    }
    Some(swapped(site, &[unpinned(f, p), independent(f, p)]))
}

/// A function past a lookup, either way, whose columns it does not read.
fn past_lookup(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (a, b) = (arena.spec(site.outer), arena.spec(site.inner));
    let looks_up = |kind: &OpKind| matches!(kind, OpKind::Lookup { .. });
    if !(a.kind.is_row() && looks_up(&b.kind) || looks_up(&a.kind) && b.kind.is_row()) {
        return None;
    }
    let conditions = [unpinned(a, b), independent(a, b), not_both_fallible(a, b)];
    Some(swapped(site, &conditions))
}
