//! Moves shuffles, takes and batches below row functions.
//!
//! The engine orders, takes and batches row keys, and computes the needed rows of each batch at
//! once. So a shuffle is cheapest right above its source, and no costs need to be compared.

use super::conditions::{swapped, unpinned};
use super::rule::{Rule, Site, Verdict};
use crate::optimizer::arena::Arena;

/// The family's rules.
pub const RULES: &[Rule] = &[
    Rule::exact("shuffle-below-row", shuffle_below_row).always(),
    Rule::exact("shuffle-below-filter", shuffle_below_filter).always(),
    Rule::exact("row-past-take", past_take),
];

/// Moves a shuffle below a row function: the order depends on row keys, not on values.
fn shuffle_below_row(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (s, f) = (arena.spec(site.outer), arena.spec(site.inner));
    if !s.kind.shuffles() || !f.kind.is_row() {
        return None;
    }
    Some(swapped(site, &[unpinned(s, f)]))
}

/// Moves a shuffle below a filter: windows are cut on stored rows, regardless of which rows the
/// filter keeps.
fn shuffle_below_filter(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (s, p) = (arena.spec(site.outer), arena.spec(site.inner));
    if !s.kind.shuffles() || !p.kind.is_filter() {
        return None;
    }
    Some(swapped(site, &[unpinned(s, p)]))
}

/// Swaps a take and a function, in either direction. A function yields one row per row, so the same
/// rows are taken, and errors of rows that are not taken are never reported. Above the take, the
/// function runs on fewer rows; below, its rows may be cached.
fn past_take(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (a, b) = (arena.spec(site.outer), arena.spec(site.inner));
    if !(a.kind.is_row() && b.kind.takes() || a.kind.takes() && b.kind.is_row()) {
        return None;
    }
    Some(swapped(site, &[unpinned(a, b)]))
}
