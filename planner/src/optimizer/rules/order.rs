//! Rules that move a shuffle below row functions and filters, and swap a take and a row function.
//!
//! The engine shuffles, takes and batches row keys, and only then computes the rows of each batch.
//! So a shuffle directly above its source is never worse than a shuffle further up, and no costs
//! need to be compared.

use super::conditions::{swapped, unpinned};
use super::rule::{Rule, Site, Verdict};
use crate::optimizer::arena::Arena;

/// The rules of the family `order`.
pub const RULES: &[Rule] = &[
    Rule::exact("shuffle-below-row", shuffle_below_row).always(),
    Rule::exact("shuffle-below-filter", shuffle_below_filter).always(),
    Rule::exact("row-past-take", past_take),
];

/// Moves a shuffle below a row function. The shuffled order depends only on row keys, not on
/// values.
fn shuffle_below_row(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (s, f) = (arena.spec(site.outer), arena.spec(site.inner));
    if !s.kind.shuffles() || !f.kind.is_row() {
        return None;
    }
    Some(swapped(site, &[unpinned(s, f)]))
}

/// Moves a shuffle below a filter. The windows of a shuffle are ranges of stored rows, whether or
/// not the filter keeps these rows.
fn shuffle_below_filter(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (s, p) = (arena.spec(site.outer), arena.spec(site.inner));
    if !s.kind.shuffles() || !p.kind.is_filter() {
        return None;
    }
    Some(swapped(site, &[unpinned(s, p)]))
}

/// Swaps a take and a function, in either direction. A function yields one row per input row, so
/// the same rows are taken in either order. Errors on rows that are not taken are never reported. A
/// function above a take runs on fewer rows, but the rows of a function below a take may be cached
/// for all epochs.
fn past_take(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (a, b) = (arena.spec(site.outer), arena.spec(site.inner));
    if !(a.kind.is_row() && b.kind.takes() || a.kind.takes() && b.kind.is_row()) {
        return None;
    }
    Some(swapped(site, &[unpinned(a, b)]))
}
