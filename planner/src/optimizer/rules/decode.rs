//! Rules over a function that decodes images. The rules move filters below the function, or let the
//! decoder do the work of the function above.

use forebay_udfs::facts::Algebra;
use forebay_udfs::image::{ImageCall, Mode, decode_luma};

use super::conditions::{over_decoding, swapped, unpinned};
use super::refusals;
use super::rule::{Rule, Site, Verdict};
use crate::clauses::Relax as Tier;
use crate::optimizer::arena::Arena;
use crate::optimizer::spec::OpKind;

/// The rules of the family `decode`.
pub const RULES: &[Rule] = &[
    Rule::exact("filter-below-decode", filter_below),
    Rule::exact("crop-into-decode", refusals::crop_into_decode),
    Rule::exact("resize-into-decode", refusals::resize_into_decode).at(Tier::Statistical),
    Rule::exact("gray-into-decode", gray_into).at(Tier::Statistical),
];

/// Moves a filter below a function that decodes images, so that fewer images are decoded. The
/// reported errors stay the same: a row that the filter drops reports no decoding error in either
/// order.
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

/// Replaces `grayscale` of an image decoded to colors by decoding only the luma, which a JPEG file
/// stores. The pixels differ slightly: decoded colors are rounded and clamped to 0 to 255 before
/// `grayscale`, and the weights of the colors differ in the fourth digit. A file without luma is
/// decoded to colors first.
fn gray_into(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, d) = (arena.spec(site.outer), arena.spec(site.inner));
    let (ImageCall::Grayscale(channels), decoding) = over_decoding(f, d)? else {
        return None;
    };
    let conditions = [
        unpinned(f, d),
        match channels {
            1 => Ok(()),
            _ => Err("grayscale yields three equal channels here, but decoded luma is one channel"),
        },
        match decoding.mode {
            Mode::Rgb => Ok(()),
            Mode::Gray | Mode::Luma => Err("the image is already decoded to gray"),
        },
        if decoding.is_strict {
            Err("strict decoding decodes the colors, too")
        } else {
            Ok(())
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
    let (slot, percent) = (*slot, d.percent);
    let luma = decode_luma(d.first_argument()?.clone())?;
    let luma = arena.row(slot, luma, fallible);
    Some(Ok(vec![arena.decoding_part(luma, percent)]))
}
