//! Crops, mirrorings and resizes of one image, by their constants.

use forebay_udfs::image::{Filter, ImageCall, Rectangle, crop, resize};

use super::{Arena, ParamId, Rule, Site, Tier, Verdict, in_place, swapped, unpinned};
use crate::optimizer::spec::OpSpec;

/// The family's rules.
pub const RULES: &[Rule] = &[
    Rule::exact("crop-crop", crop_crop),
    Rule::exact("crop-past-flip", crop_past_flip),
    Rule::exact("resize-resize", resize_resize).at(Tier::Statistical),
    Rule::exact("crop-past-resize", crop_past_resize).at(Tier::Statistical),
];

const UNKNOWN_SIZE: &str = "the image's size is not known from the plan";
const BEYOND: &str = "the rectangle would begin further off than a crop may";

/// The two calls over one image.
fn calls(outer: &OpSpec, inner: &OpSpec) -> Option<(ImageCall, ImageCall)> {
    in_place(outer, inner)?;
    Some((outer.image_call()?, inner.image_call()?))
}

/// The crop of a rectangle in the place of another operator over the same image.
fn cropped(arena: &mut Arena, of: ParamId, rectangle: Rectangle) -> Option<Verdict> {
    if !rectangle.is_writable() {
        return Some(Err(BEYOND));
    }
    let spec = arena.spec(of);
    let call = crop(spec.first_argument()?.clone(), rectangle)?;
    Some(Ok(vec![arena.over(of, call)?]))
}

/// A crop of a crop is one crop. Both are zero outside the image, so only the places that the upper
/// rectangle sees of the lower one matter; outside the lower one it would see zeros where the image may
/// have pixels.
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
            "the upper rectangle leaves the lower one, and sees zeros there",
        ));
    }
    let merged = Rectangle {
        top: lower.top + upper.top,
        left: lower.left + upper.left,
        ..upper
    };
    cropped(arena, site.outer, merged)
}

/// A crop past a mirroring, either way, as the crop of the mirrored rectangle. Where it is drawn whether
/// the image is mirrored, the rectangle must be its own mirror image.
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
            "it is drawn whether the image is mirrored, and the rectangle is not its own mirror image",
        ));
    }
    let (of, flip) = match crop_is_outer {
        true => (site.outer, site.inner),
        false => (site.inner, site.outer),
    };
    let mut ops = match cropped(arena, of, mirrored)? {
        Ok(ops) => ops,
        refused => return Some(refused),
    };
    match crop_is_outer {
        true => ops.push(flip),
        false => ops.insert(0, flip),
    }
    Some(Ok(ops))
}

/// A resize of a resize is the upper one, where the lower one loses nothing that the upper one shows.
fn resize_resize(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    let (
        ImageCall::Resize(height, width, filter),
        ImageCall::Resize(height_below, width_below, filter_below),
    ) = calls(f, g)?
    else {
        return None;
    };
    let same_filter = match filter == filter_below {
        true => Ok(()),
        false => Err("they sample in different ways"),
    };
    let finer = match height <= height_below && width <= width_below {
        true => Ok(()),
        false => Err("the lower one makes the image smaller than the upper one"),
    };
    let conditions = [unpinned(f, g), same_filter, finer];
    let refused = conditions.into_iter().find_map(Result::err);
    Some(refused.map_or_else(|| Ok(vec![site.outer]), Err))
}

/// Places of an image along one side: the first, and one past the last.
type Span = (usize, usize);

/// Of a side of `from` pixels resized to `to`: the wanted span of the result widened by the kernel's
/// reach, and the span of the source that it is made of.
fn halo((begin, end): Span, from: usize, to: usize, filter: Filter) -> (Span, Span) {
    // A kernel reaches this many pixels of the coarser image.
    let lobes = match filter {
        Filter::Nearest => 0,
        Filter::Bilinear => 1,
        Filter::Bicubic => 2,
        Filter::Lanczos => 3,
    };
    let reach = (lobes * to.max(from)).div_ceil(from);
    let wide = (begin.saturating_sub(reach), (end + reach).min(to));
    let source = (wide.0 * from / to, (wide.1 * from).div_ceil(to));
    (wide, source)
}

/// A crop of a resized image, as a resize of what the crop shows of the image and its kernels reach: the
/// source rectangle is rounded to whole pixels, so the image is shifted by less than one of them.
fn crop_past_resize(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    let (cut, ImageCall::Resize(height, width, filter)) = calls(f, g)? else {
        return None;
    };
    let rectangle = cut.rectangle(Some((height, width)))?;
    let size = site.image(arena).and_then(|image| image.shape);
    let conditions = [
        unpinned(f, g),
        match rectangle.is_within((height, width)) {
            true => Ok(()),
            false => Err("the crop reaches outside the image"),
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
        return Some(Err("it is made of all of the image"));
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
