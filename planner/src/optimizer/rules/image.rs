//! Rules of functions over the same image.

use forebay_udfs::facts::{Algebra, Scale};

use super::conditions::{in_place, not_both_fallible, swapped, unpinned};
use super::rule::{Rule, Site, Verdict};
use crate::clauses::Relax as Tier;
use crate::optimizer::arena::Arena;
use crate::optimizer::spec::OpSpec;

/// The family's rules.
pub const RULES: &[Rule] = &[
    Rule::exact("pointwise-past-select", pointwise_past_select),
    Rule::exact("flip-flip", flip_flip).always(),
    Rule::exact("relaxed-swap", relaxed_swap).at(Tier::Statistical),
];

/// The effect of a function on the pixels of an image of the given size. A crop inside the image
/// copies pixels, and any other crop also adds zeros.
fn treats(spec: &OpSpec, size: Option<(usize, usize)>) -> Algebra {
    let inside = || {
        let rectangle = spec.image_call()?.rectangle(size)?;
        Some(rectangle.is_within(size?))
    };
    match spec.algebra {
        Algebra::Spatial if inside() == Some(true) => Algebra::Select,
        algebra => algebra,
    }
}

/// Swaps a function that maps each pixel by itself with a function that only moves pixels: each
/// output pixel is the same function of the same input pixel, to the bit.
fn pointwise_past_select(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    in_place(f, g)?;
    // The size of the image below both functions is also its size below a crop: the other function
    // does not change the size.
    let size = site.image(arena).and_then(|image| image.shape);
    let pair = match (treats(f, size), treats(g, size)) {
        (Algebra::Pointwise, Algebra::Select) | (Algebra::Select, Algebra::Pointwise) => Ok(()),
        (Algebra::Opaque, _) | (_, Algebra::Opaque) => return None,
        (Algebra::Global, _) | (_, Algebra::Global) => Err("one of them reads every pixel"),
        (Algebra::Spatial, _) | (_, Algebra::Spatial) => {
            Err("one of them mixes pixels, or adds some")
        }
        _ => Err("it takes one that acts on each pixel, and one that moves pixels"),
    };
    Some(swapped(
        site,
        &[unpinned(f, g), pair, not_both_fallible(f, g)],
    ))
}

/// Drops two equal mirrorings, which cancel.
fn flip_flip(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    if in_place(f, g).is_none() || f.algebra != Algebra::Select || g.algebra != Algebra::Select {
        return None;
    }
    if site.outer != site.inner || !matches!(f.function(), Some("hflip" | "vflip")) {
        return Some(Err(
            "the two are not the same flip: both must mirror along one axis, and neither at random",
        ));
    }
    Some(unpinned(f, g).map(|()| Vec::new()))
}

fn keeps_shape(spec: &OpSpec) -> bool {
    spec.facts().is_some_and(|facts| facts.keeps_shape)
}

fn scale(spec: &OpSpec) -> Scale {
    spec.facts().map_or(Scale::Free, |facts| facts.scale)
}

/// Swaps two functions of an image unless both resample or cut it. The pixels differ, but are as
/// useful for training (Pecan, USENIX ATC 2024, calls this relaxed commutativity).
fn relaxed_swap(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    in_place(f, g)?;
    let pair = match (f.algebra, g.algebra) {
        (Algebra::Opaque, _) | (_, Algebra::Opaque) => Err("one of them is no image function"),
        (Algebra::Spatial, Algebra::Spatial) => Err("a crop of a smaller image shows more of it"),
        _ if !keeps_shape(f) && !keeps_shape(g) => Err("both change the image's size"),
        _ if !scale(f).commutes(scale(g)) => {
            Err("one of them changes the scale that the other reads")
        }
        _ => Ok(()),
    };
    Some(swapped(site, &[unpinned(f, g), pair]))
}
