//! Functions over the same image.

use forebay_udfs::facts::Algebra;

use super::{Arena, Rule, Site, Tier, Verdict, not_both_fallible, swapped, unpinned};
use crate::optimizer::slots::Slot;
use crate::optimizer::spec::{OpKind, OpSpec};

/// The family's rules.
pub const RULES: &[Rule] = &[
    Rule::exact("pointwise-past-select", pointwise_past_select),
    Rule::exact("flip-flip", flip_flip).always(),
    Rule::exact("relaxed-swap", relaxed_swap).at(Tier::Statistical),
];

/// Two functions that rewrite one image in place.
fn in_place(outer: &OpSpec, inner: &OpSpec) -> bool {
    let rewrites = |spec: &OpSpec| -> Option<Slot> {
        match &spec.kind {
            OpKind::Row { slot, .. } if spec.reads.contains(*slot) => Some(*slot),
            _ => None,
        }
    };
    let slot = rewrites(outer);
    slot.is_some() && slot == rewrites(inner) && outer.reads == inner.reads
}

/// A function of each pixel's own value, past one that only copies pixels to other places: each output
/// pixel is the same function of the same input pixel, to the bit.
fn pointwise_past_select(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    if !in_place(f, g) {
        return None;
    }
    let pair = match (f.algebra, g.algebra) {
        (Algebra::Pointwise, Algebra::Select) | (Algebra::Select, Algebra::Pointwise) => Ok(()),
        (Algebra::Opaque, _) | (_, Algebra::Opaque) => return None,
        (Algebra::Global, _) | (_, Algebra::Global) => Err("one of them reads every pixel"),
        (Algebra::Spatial, _) | (_, Algebra::Spatial) => Err("one of them mixes pixels"),
        _ => Err("neither copies pixels from place to place"),
    };
    Some(swapped(
        site,
        &[unpinned(f, g), pair, not_both_fallible(f, g)],
    ))
}

/// A mirror image of the mirror image is the image.
fn flip_flip(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    if !in_place(f, g) || f.algebra != Algebra::Select || g.algebra != Algebra::Select {
        return None;
    }
    if site.outer != site.inner || !matches!(f.function(), Some("hflip" | "vflip")) {
        return Some(Err("they are not the same flip"));
    }
    Some(unpinned(f, g).map(|()| Vec::new()))
}

/// Two functions of an image that do not both resample or cut it: other pixels, of the same value to
/// training (Pecan, USENIX ATC 2024, calls it relaxed commutativity).
fn relaxed_swap(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    if !in_place(f, g) {
        return None;
    }
    let pair = match (f.algebra, g.algebra) {
        (Algebra::Opaque, _) | (_, Algebra::Opaque) => Err("one of them is no image function"),
        (Algebra::Spatial, Algebra::Spatial) => Err("a crop of a smaller image shows more of it"),
        _ => Ok(()),
    };
    Some(swapped(site, &[unpinned(f, g), pair]))
}
