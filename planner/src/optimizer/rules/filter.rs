//! Filters, moved down to where fewer or smaller rows pass them.

use forebay_udfs::facts::Algebra;

use super::{Arena, Rule, Site, Verdict, independent, not_both_fallible, swapped, unpinned};
use crate::optimizer::spec::OpKind;

/// The family's rules.
pub const RULES: &[Rule] = &[
    Rule::exact("filter-below-row", below_row),
    Rule::exact("filter-swap", swap),
    Rule::exact("filter-below-lookup", below_lookup),
    Rule::exact("filter-below-flatten", below_flatten),
    Rule::exact("filter-past-take", past_take),
];

/// A filter below a function whose slot it does not read. Errors are values: a row that the filter
/// drops surfaces no error of the function, and of a row on which both fail the predicate's is
/// reported, in either order.
fn below_row(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (p, f) = (arena.spec(site.outer), arena.spec(site.inner));
    if !p.kind.is_filter() || !f.kind.is_row() {
        return None;
    }
    // Decoding has a rule of its own, for people ask about it.
    if f.algebra == Algebra::Decode {
        return None;
    }
    Some(swapped(site, &[unpinned(p, f), independent(p, f)]))
}

/// Two filters the other way round: false beats error in a conjunction, so both orders keep the same
/// rows; a row on which both fail would report another one.
fn swap(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (p, q) = (arena.spec(site.outer), arena.spec(site.inner));
    if !p.kind.is_filter() || !q.kind.is_filter() {
        return None;
    }
    Some(swapped(site, &[unpinned(p, q), not_both_fallible(p, q)]))
}

/// A filter on the probe side's slots below a lookup.
fn below_lookup(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (p, l) = (arena.spec(site.outer), arena.spec(site.inner));
    if !p.kind.is_filter() || !matches!(l.kind, OpKind::Lookup { .. }) {
        return None;
    }
    let conditions = [unpinned(p, l), independent(p, l), not_both_fallible(p, l)];
    Some(swapped(site, &conditions))
}

/// A filter on stored slots below an unnest.
fn below_flatten(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (p, u) = (arena.spec(site.outer), arena.spec(site.inner));
    if !p.kind.is_filter() || !matches!(u.kind, OpKind::Flatten { .. }) {
        return None;
    }
    let draws = match p.draws {
        true => Err("above an unnest it draws for each element, below it for each row"),
        false => Ok(()),
    };
    Some(swapped(site, &[unpinned(p, u), independent(p, u), draws]))
}

/// Never: the rule stands here so that `WHY NOT filter-past-take` has an answer.
fn past_take(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (p, t) = (arena.spec(site.outer), arena.spec(site.inner));
    let why = match t.kind {
        _ if !p.kind.is_filter() => return None,
        OpKind::Take { .. } => "TAKE would take other rows",
        OpKind::Limit { .. } => "LIMIT would keep other rows",
        OpKind::Batch { .. } => "batches would hold other rows",
        _ => return None,
    };
    Some(Err(why))
}
