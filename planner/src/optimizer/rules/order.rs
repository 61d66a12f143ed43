//! What orders, takes and batches rows, below row functions; takes merged.
//!
//! The engine orders, takes and batches row keys, and computes the rows that are wanted of each batch at
//! once. So a shuffle is cheapest right above its source, and nothing is to be weighed.

use super::{Arena, Rule, Site, Verdict, swapped, unpinned};
use crate::optimizer::spec::OpKind;

/// The family's rules.
pub const RULES: &[Rule] = &[
    Rule::exact("shuffle-below-row", shuffle_below_row).always(),
    Rule::exact("shuffle-below-filter", shuffle_below_filter).always(),
    Rule::exact("row-past-take", past_take),
    Rule::exact("take-take", take_take).always(),
];

/// The order is by row key, so values do not matter to it.
fn shuffle_below_row(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (s, f) = (arena.spec(site.outer), arena.spec(site.inner));
    if !matches!(s.kind, OpKind::Shuffle { .. }) || !f.kind.is_row() {
        return None;
    }
    Some(swapped(site, &[unpinned(s, f)]))
}

/// Windows are cut on stored rows, whichever of them a filter keeps.
fn shuffle_below_filter(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (s, p) = (arena.spec(site.outer), arena.spec(site.inner));
    if !matches!(s.kind, OpKind::Shuffle { .. }) || !p.kind.is_filter() {
        return None;
    }
    Some(swapped(site, &[unpinned(s, p)]))
}

/// Either way: a function gives one row for each, so the same rows are taken; errors of the others never
/// surface. Fewer rows are computed above, but below they may be cached.
fn past_take(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (a, b) = (arena.spec(site.outer), arena.spec(site.inner));
    let takes = |kind: &OpKind| matches!(kind, OpKind::Take { .. } | OpKind::Limit { .. });
    if !(a.kind.is_row() && takes(&b.kind) || takes(&a.kind) && b.kind.is_row()) {
        return None;
    }
    Some(swapped(site, &[unpinned(a, b)]))
}

/// Rows taken of rows taken.
fn take_take(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (a, b) = (arena.spec(site.outer), arena.spec(site.inner));
    let (
        OpKind::Take {
            skip,
            take,
            shuffled,
        },
        OpKind::Take {
            skip: skip_below,
            take: take_below,
            ..
        },
    ) = (&a.kind, &b.kind)
    else {
        return None;
    };
    if let Err(pinned) = unpinned(a, b) {
        return Some(Err(pinned));
    }
    let (skip, take, shuffled) = (
        skip.saturating_add(*skip_below),
        (*take).min(take_below.saturating_sub(*skip)),
        *shuffled,
    );
    Some(Ok(vec![arena.take(skip, take, shuffled)]))
}
