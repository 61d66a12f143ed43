//! Rules that move filters below other operators, which then process fewer rows.

use forebay_udfs::facts::Algebra;

use super::conditions::{independent, not_both_fallible, swapped, unpinned};
use super::refusals;
use super::rule::{Rule, Site, Verdict};
use crate::optimizer::arena::Arena;
use crate::optimizer::spec::OpKind;

/// The rules of the family `filter`.
pub const RULES: &[Rule] = &[
    Rule::exact("filter-below-row", below_row),
    Rule::exact("filter-swap", swap),
    Rule::exact("filter-below-lookup", below_lookup),
    Rule::exact("filter-below-flatten", below_flatten),
    Rule::exact("filter-past-take", refusals::filter_past_take),
];

/// Moves a filter below a function whose slot the filter does not read. The reported errors stay
/// the same: in either order, a row that the filter drops reports no error of the function, and a
/// row on which both raise an error reports the filter's error.
fn below_row(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (p, f) = (arena.spec(site.outer), arena.spec(site.inner));
    if !p.kind.is_filter() || !f.kind.is_row() {
        return None;
    }
    // Functions that decode images have a separate rule, `filter-below-decode`, so that users can
    // ask WHY NOT about that rule.
    if f.algebra == Algebra::Decode {
        return None;
    }
    Some(swapped(site, &[unpinned(p, f), independent(p, f)]))
}

/// Swaps two filters. A row for which one filter is false is dropped even if the other raises an
/// error, so both orders keep the same rows. Refuses if both filters can raise errors, since a row
/// would then report another error.
fn swap(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (p, q) = (arena.spec(site.outer), arena.spec(site.inner));
    if !p.kind.is_filter() || !q.kind.is_filter() {
        return None;
    }
    Some(swapped(site, &[unpinned(p, q), not_both_fallible(p, q)]))
}

/// Moves a filter below a lookup, if the filter does not read the columns that the lookup adds.
fn below_lookup(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (p, l) = (arena.spec(site.outer), arena.spec(site.inner));
    if !p.kind.is_filter() || !l.kind.looks_up() {
        return None;
    }
    let conditions = [unpinned(p, l), independent(p, l), not_both_fallible(p, l)];
    Some(swapped(site, &conditions))
}

/// Moves a filter below an unnest, if the filter reads neither the unnested lists nor their
/// elements.
fn below_flatten(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (p, u) = (arena.spec(site.outer), arena.spec(site.inner));
    if !p.kind.is_filter() || !matches!(u.kind, OpKind::Flatten { .. }) {
        return None;
    }
    let draws = if p.draws {
        Err(
            "the filter is random: it draws for each element above the unnest, but for each row below",
        )
    } else {
        Ok(())
    };
    Some(swapped(site, &[unpinned(p, u), independent(p, u), draws]))
}
