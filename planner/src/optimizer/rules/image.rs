//! Rules over two functions of the same image, whose conditions depend mainly on the declared facts
//! about the functions.

use forebay_udfs::facts::{Algebra, Scale};

use super::conditions::{in_place, not_both_fallible, swapped, unpinned};
use super::rule::{Rule, Site, Verdict};
use crate::clauses::Relax as Tier;
use crate::optimizer::arena::Arena;
use crate::optimizer::spec::OpSpec;

/// The rules of the family `image`.
pub const RULES: &[Rule] = &[
    Rule::exact("pointwise-past-select", pointwise_past_select),
    Rule::exact("flip-flip", flip_flip).always(),
    Rule::exact("relaxed-swap", relaxed_swap).at(Tier::Statistical),
];

/// The relation between the pixels that the function of `spec` writes and those that it reads, for
/// an image whose height and width are `size`. A crop within the image only copies pixels, but a
/// crop that reaches outside the image also adds zeros.
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

/// Swaps a function that maps each pixel separately with a function that only moves pixels. The
/// result is the same to the bit, since each output pixel is computed from the same input pixel in
/// either order.
fn pointwise_past_select(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    in_place(f, g)?;
    // The size of the image below both functions is also its size directly below a crop, since a
    // function of single pixels does not change the size.
    let size = site.image(arena).and_then(|image| image.shape);
    let pair = match (treats(f, size), treats(g, size)) {
        (Algebra::Pointwise, Algebra::Select) | (Algebra::Select, Algebra::Pointwise) => Ok(()),
        (Algebra::Opaque, _) | (_, Algebra::Opaque) => return None,
        (Algebra::Global, _) | (_, Algebra::Global) => Err("one of them reads every pixel"),
        (Algebra::Spatial, _) | (_, Algebra::Spatial) => {
            Err("one of them mixes pixels, or adds pixels")
        }
        _ => {
            Err("only a function of single pixels and a function that moves pixels can be swapped")
        }
    };
    Some(swapped(
        site,
        &[unpinned(f, g), pair, not_both_fallible(f, g)],
    ))
}

/// Drops two flips along the same axis, since the second undoes the first.
fn flip_flip(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    if in_place(f, g).is_none() || f.algebra != Algebra::Select || g.algebra != Algebra::Select {
        return None;
    }
    if site.outer != site.inner || !matches!(f.function(), Some("hflip" | "vflip")) {
        return Some(Err(
            "only two flips along the same axis cancel, and neither may be random",
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

/// Swaps two functions of the same image, unless both are spatial, both change the image's size, or
/// one changes the scale of samples on which the other depends. The pixels differ, but the images
/// are as useful for training (relaxed commutativity in Pecan, USENIX ATC 2024).
fn relaxed_swap(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    in_place(f, g)?;
    let pair = match (f.algebra, g.algebra) {
        (Algebra::Opaque, _) | (_, Algebra::Opaque) => Err("one of them is not an image function"),
        (Algebra::Spatial, Algebra::Spatial) => {
            Err("both cut, resize or mix pixels, so their order decides what the image shows")
        }
        _ if !keeps_shape(f) && !keeps_shape(g) => Err("both change the image's size"),
        _ if !scale(f).commutes(scale(g)) => {
            Err("one of them changes the range of values on which the other depends")
        }
        _ => Ok(()),
    };
    Some(swapped(site, &[unpinned(f, g), pair]))
}
