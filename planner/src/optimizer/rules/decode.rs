//! Decoding: filters below it, and what a decoder could do itself.

use datafusion::logical_expr::Expr;
use forebay_udfs::facts::Algebra;
use forebay_udfs::image::{ImageCall, Mode, decode_luma};

use super::{Arena, Rule, Site, Tier, Verdict, swapped, unpinned};
use crate::optimizer::spec::{OpKind, OpSpec};

/// The family's rules.
pub const RULES: &[Rule] = &[
    Rule::exact("filter-below-decode", filter_below),
    Rule::exact("crop-into-decode", crop_into),
    Rule::exact("resize-into-decode", resize_into).at(Tier::Statistical),
    Rule::exact("gray-into-decode", gray_into).at(Tier::Statistical),
];

/// A filter below decoding, which then runs on the rows that are left. Errors are values: of a row that
/// the filter drops, no error of decoding surfaces in either order.
fn filter_below(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (p, d) = (arena.spec(site.outer), arena.spec(site.inner));
    if !p.kind.is_filter() || d.algebra != Algebra::Decode {
        return None;
    }
    let blind = match p.reads.is_disjoint(&d.writes) {
        true => Ok(()),
        false => Err("the predicate reads the decoded pixels"),
    };
    Some(swapped(site, &[unpinned(p, d), blind]))
}

/// The call over decoded pixels, and the mode in which they are decoded.
fn over_decoding(outer: &OpSpec, inner: &OpSpec) -> Option<(ImageCall, Mode)> {
    match (&outer.kind, inner.image_call()) {
        (OpKind::Row { slot, .. }, Some(ImageCall::Decode(mode)))
            if inner.writes.contains(*slot)
                && outer.reads == inner.writes
                && matches!(outer.first_argument(), Some(Expr::Column(_))) =>
        {
            Some((outer.image_call()?, mode))
        }
        _ => None,
    }
}

/// Never with the decoders that there are: the rule stands here so that WHY NOT has an answer.
fn crop_into(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, d) = (arena.spec(site.outer), arena.spec(site.inner));
    let (ImageCall::Crop(_) | ImageCall::CenterCrop(..), _) = over_decoding(f, d)? else {
        return None;
    };
    let unable = Err("no decoder reads a part of an image without the rest");
    Some(unpinned(f, d).and(unable))
}

/// Never with the decoders that there are: the rule stands here so that WHY NOT has an answer.
fn resize_into(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, d) = (arena.spec(site.outer), arena.spec(site.inner));
    let (ImageCall::Resize(..) | ImageCall::ResizeShortest(..), _) = over_decoding(f, d)? else {
        return None;
    };
    let unable = Err("no decoder scales while it decodes");
    Some(unpinned(f, d).and(unable))
}

/// Gray of decoded colors, as the luma that a JPEG holds: colors are rounded and cut to 0 to 255 before
/// gray is computed of them, and the weights differ in the fourth place. A file that holds no luma is
/// decoded to colors first.
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
