//! Rules of decoding: filters below decoding, and operations that a decoder could do itself.

use forebay_udfs::facts::Algebra;
use forebay_udfs::image::{ImageCall, Mode, decode_luma};

use super::conditions::{over_decoding, swapped, unpinned};
use super::refusals;
use super::rule::{Rule, Site, Verdict};
use crate::clauses::Relax as Tier;
use crate::optimizer::arena::Arena;
use crate::optimizer::spec::OpKind;

/// The family's rules.
pub const RULES: &[Rule] = &[
    Rule::exact("filter-below-decode", filter_below),
    Rule::exact("crop-into-decode", refusals::crop_into_decode),
    Rule::exact("resize-into-decode", refusals::resize_into_decode).at(Tier::Statistical),
    Rule::exact("gray-into-decode", gray_into).at(Tier::Statistical),
];

/// Moves a filter below decoding, so that fewer rows are decoded. Errors are values: a dropped row
/// reports no decoding error in either order.
fn filter_below(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (p, d) = (arena.spec(site.outer), arena.spec(site.inner));
    if !p.kind.is_filter() || d.algebra != Algebra::Decode {
        return None;
    }
    let blind = if p.reads.is_disjoint(&d.writes) {
        Ok(())
    } else {
        Err("the predicate reads the decoded pixels")
    };
    Some(swapped(site, &[unpinned(p, d), blind]))
}

/// Replaces gray of decoded colors by the luma that a JPEG stores. The results differ, since colors
/// are rounded and clamped to 0 to 255 before gray is computed, and the weights differ in the
/// fourth digit. Files without luma are decoded to colors first.
fn gray_into(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, d) = (arena.spec(site.outer), arena.spec(site.inner));
    let (ImageCall::Grayscale(channels), mode) = over_decoding(f, d)? else {
        return None;
    };
    let conditions = [
        unpinned(f, d),
        match channels {
            1 => Ok(()),
            _ => Err("three equal channels are wanted, and luma is one"),
        },
        match mode {
            Mode::Rgb => Ok(()),
            Mode::Gray | Mode::Luma => Err("it decodes to gray already"),
        },
    ];
    for condition in conditions {
        if let Err(why) = condition {
            return Some(Err(why));
        }
    }
    let (OpKind::Row { slot, .. }, fallible) = (&f.kind, d.fallible) else {
        return None;
    };
    let slot = *slot;
    let luma = decode_luma(d.first_argument()?.clone())?;
    Some(Ok(vec![arena.row(slot, luma, fallible)]))
}
