//! Moves filters down, where fewer or smaller rows pass them.

use forebay_udfs::facts::Algebra;

use super::conditions::{independent, not_both_fallible, swapped, unpinned};
use super::refusals;
use super::rule::{Rule, Site, Verdict};
use crate::optimizer::arena::Arena;
use crate::optimizer::spec::OpKind;

/// The family's rules.
pub const RULES: &[Rule] = &[
    Rule::exact("filter-below-row", below_row),
    Rule::exact("filter-swap", swap),
    Rule::exact("filter-below-lookup", below_lookup),
    Rule::exact("filter-below-flatten", below_flatten),
    Rule::exact("filter-past-take", refusals::filter_past_take),
];

/// Moves a filter below a function whose slot the filter does not read. Errors are values: a
/// dropped row reports no error of the function, and a row on which both fail reports the
/// predicate's error, in either order.
fn below_row(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (p, f) = (arena.spec(site.outer), arena.spec(site.inner));
    if !p.kind.is_filter() || !f.kind.is_row() {
        return None;
    }
    // Decoding has its own rule, so that WHY NOT can ask for that rule.
    if f.algebra == Algebra::Decode {
        return None;
    }
    Some(swapped(site, &[unpinned(p, f), independent(p, f)]))
}

/// Swaps two filters. In a conjunction, false prevails over an error, so both orders keep the same
/// rows. If both filters can fail, the swap would report another error.
fn swap(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (p, q) = (arena.spec(site.outer), arena.spec(site.inner));
    if !p.kind.is_filter() || !q.kind.is_filter() {
        return None;
    }
    Some(swapped(site, &[unpinned(p, q), not_both_fallible(p, q)]))
}

/// Moves a filter on the probe side's slots below a lookup.
fn below_lookup(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (p, l) = (arena.spec(site.outer), arena.spec(site.inner));
    if !p.kind.is_filter() || !l.kind.looks_up() {
        return None;
    }
    let conditions = [unpinned(p, l), independent(p, l), not_both_fallible(p, l)];
    Some(swapped(site, &conditions))
}

/// Moves a filter on stored slots below an unnest.
fn below_flatten(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (p, u) = (arena.spec(site.outer), arena.spec(site.inner));
    if !p.kind.is_filter() || !matches!(u.kind, OpKind::Flatten { .. }) {
        return None;
    }
    let draws = if p.draws {
        Err("above an unnest it draws for each element, below it for each row")
    } else {
        Ok(())
    };
    Some(swapped(site, &[unpinned(p, u), independent(p, u), draws]))
}
