//! Rules over two crops, flips or resizes of one image, whose conditions depend on the constant
//! arguments of both functions.

use forebay_udfs::image::{ImageCall, Interpolation, Rectangle, crop, resize};

use super::conditions::{in_place, swapped, unpinned};
use super::rule::{Rule, Site, Verdict};
use crate::clauses::Relax as Tier;
use crate::optimizer::arena::Arena;
use crate::optimizer::ids::ParamId;
use crate::optimizer::spec::OpSpec;

/// The rules of the family `geometry`.
pub const RULES: &[Rule] = &[
    Rule::exact("crop-crop", crop_crop),
    Rule::exact("crop-past-flip", crop_past_flip),
    Rule::exact("resize-resize", resize_resize).at(Tier::Statistical),
    Rule::exact("crop-past-resize", crop_past_resize).at(Tier::Statistical),
];

const UNKNOWN_SIZE: &str = "the image's size is not known from the plan";
const BEYOND: &str = "the rectangle would begin at an offset that is too large for a crop";

/// The image calls of `outer` and `inner`; `None` if these operators do not rewrite the same image
/// in place.
fn calls(outer: &OpSpec, inner: &OpSpec) -> Option<(ImageCall, ImageCall)> {
    in_place(outer, inner)?;
    Some((outer.image_call()?, inner.image_call()?))
}

/// Returns the crop to `rectangle` that replaces the operator `of`, and crops the same image as
/// `of` reads.
fn cropped(arena: &mut Arena, of: ParamId, rectangle: Rectangle) -> Option<Verdict> {
    if !rectangle.is_writable() {
        return Some(Err(BEYOND));
    }
    let spec = arena.spec(of);
    let call = crop(spec.first_argument()?.clone(), rectangle)?;
    Some(Ok(vec![arena.over(of, call)?]))
}

/// Merges two crops into one. A crop yields zeros outside its input. So the upper crop's rectangle
/// must lie within the lower crop's rectangle: outside, the upper crop yields zeros, but a merged
/// crop might yield pixels of the image.
fn crop_crop(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    let (upper, lower) = calls(f, g)?;
    let size = site.image(arena).and_then(|image| image.shape);
    let (
        ImageCall::Crop(_) | ImageCall::CenterCrop(..),
        ImageCall::Crop(_) | ImageCall::CenterCrop(..),
    ) = (&upper, &lower)
    else {
        return None;
    };
    if let Err(pinned) = unpinned(f, g) {
        return Some(Err(pinned));
    }
    let Some(lower) = lower.rectangle(size) else {
        return Some(Err(UNKNOWN_SIZE));
    };
    let upper = upper.rectangle(Some((lower.height, lower.width)))?;
    if !upper.is_within((lower.height, lower.width)) {
        return Some(Err(
            "the upper crop reaches outside the rectangle of the lower crop, where it yields zeros",
        ));
    }
    let merged = Rectangle {
        top: lower.top + upper.top,
        left: lower.left + upper.left,
        ..upper
    };
    cropped(arena, site.outer, merged)
}

/// Swaps a crop and a flip, and mirrors the crop's rectangle. If the flip is random, the rectangle
/// must be its own mirror image.
fn crop_past_flip(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    let (cut, axis, crop_is_outer) = match calls(f, g)? {
        (cut @ (ImageCall::Crop(_) | ImageCall::CenterCrop(..)), ImageCall::Mirror(axis)) => {
            (cut, axis, true)
        }
        (ImageCall::Mirror(axis), cut @ (ImageCall::Crop(_) | ImageCall::CenterCrop(..))) => {
            (cut, axis, false)
        }
        _ => return None,
    };
    if let Err(pinned) = unpinned(f, g) {
        return Some(Err(pinned));
    }
    let Some(size) = site.image(arena).and_then(|image| image.shape) else {
        return Some(Err(UNKNOWN_SIZE));
    };
    let rectangle = cut.rectangle(Some(size))?;
    let mirrored = rectangle.mirrored(axis, size);
    if rectangle == mirrored {
        return Some(swapped(site, &[]));
    }
    if f.draws || g.draws {
        return Some(Err(
            "the flip is random, and the crop's rectangle is not its own mirror image",
        ));
    }
    let (of, flip) = if crop_is_outer {
        (site.outer, site.inner)
    } else {
        (site.inner, site.outer)
    };
    let mut ops = match cropped(arena, of, mirrored)? {
        Ok(ops) => ops,
        refused => return Some(refused),
    };
    if crop_is_outer {
        ops.push(flip)
    } else {
        ops.insert(0, flip)
    }
    Some(Ok(ops))
}

/// Drops the lower of two resizes, unless the lower resize yields an image of smaller height or
/// width than the upper resize, and so loses detail.
fn resize_resize(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    let (
        ImageCall::Resize(height, width, filter),
        ImageCall::Resize(height_below, width_below, filter_below),
    ) = calls(f, g)?
    else {
        return None;
    };
    let same_filter = if filter == filter_below {
        Ok(())
    } else {
        Err("the two resizes use different interpolations")
    };
    let finer = if height <= height_below && width <= width_below {
        Ok(())
    } else {
        Err("the lower resize yields a smaller image than the upper resize")
    };
    let conditions = [unpinned(f, g), same_filter, finer];
    let refused = conditions.into_iter().find_map(Result::err);
    Some(refused.map_or_else(|| Ok(vec![site.outer]), Err))
}

/// A range of pixel positions along one side: the first position, and one past the last.
type Span = (usize, usize);

/// For one side of an image, resized from `from` to `to` pixels, returns two ranges. The first is
/// the range `begin..end` of the result, widened by the reach of the resize's kernel. The second is
/// the range of the source from which the first range is computed.
fn halo((begin, end): Span, from: usize, to: usize, filter: Interpolation) -> (Span, Span) {
    // Number of pixels that the kernel reaches to each side, counted in pixels of the smaller
    // image.
    let lobes = match filter {
        Interpolation::Nearest => 0,
        Interpolation::Bilinear => 1,
        Interpolation::Bicubic => 2,
        Interpolation::Lanczos => 3,
    };
    let reach = (lobes * to.max(from)).div_ceil(from);
    let wide = (begin.saturating_sub(reach), (end + reach).min(to));
    let source = (wide.0 * from / to, (wide.1 * from).div_ceil(to));
    (wide, source)
}

/// Moves a crop below a resize. The resize then computes only the part of the image that the crop
/// shows, widened by the reach of the resize's kernel. The rectangle of the new lower crop is
/// rounded to whole pixels, so the result is shifted by less than one source pixel.
fn crop_past_resize(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    let (cut, ImageCall::Resize(height, width, filter)) = calls(f, g)? else {
        return None;
    };
    let rectangle = cut.rectangle(Some((height, width)))?;
    let size = site.image(arena).and_then(|image| image.shape);
    let conditions = [
        unpinned(f, g),
        if rectangle.is_within((height, width)) {
            Ok(())
        } else {
            Err("the crop reaches outside the image")
        },
        size.map(drop).ok_or(UNKNOWN_SIZE),
    ];
    if let Some(why) = conditions.into_iter().find_map(Result::err) {
        return Some(Err(why));
    }
    let (from, image) = (size?, g.first_argument()?.clone());
    let (top, left) = (rectangle.top as usize, rectangle.left as usize);
    let rows = (top, top + rectangle.height);
    let columns = (left, left + rectangle.width);
    let (rows_wide, rows_from) = halo(rows, from.0, height, filter);
    let (columns_wide, columns_from) = halo(columns, from.1, width, filter);
    if rows_from == (0, from.0) && columns_from == (0, from.1) {
        return Some(Err("the cropped part is computed from the whole image"));
    }
    let within = |rows: Span, columns: Span| Rectangle {
        top: rows.0 as i64,
        left: columns.0 as i64,
        height: rows.1 - rows.0,
        width: columns.1 - columns.0,
    };
    let smaller = (rows_wide.1 - rows_wide.0, columns_wide.1 - columns_wide.0);
    let resized = resize(image, smaller, filter)?;
    let mut ops = match cropped(arena, site.inner, within(rows_from, columns_from))? {
        Ok(ops) => ops,
        refused => return Some(refused),
    };
    ops.push(arena.over(site.inner, resized)?);
    if (rows_wide, columns_wide) != (rows, columns) {
        let last = Rectangle {
            top: (rows.0 - rows_wide.0) as i64,
            left: (columns.0 - columns_wide.0) as i64,
            ..rectangle
        };
        match cropped(arena, site.outer, last)? {
            Ok(last) => ops.extend(last),
            refused => return Some(refused),
        }
    }
    Some(Ok(ops))
}
