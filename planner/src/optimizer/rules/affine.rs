//! Rules of functions that map each sample `x` of an image to `a x + b`: `to_float` and
//! `normalize`.

use forebay_udfs::Dtype;
use forebay_udfs::image::{ImageCall, normalize};

use super::conditions::{in_place, not_both_fallible, swapped, unpinned};
use super::rule::{Rule, Site, Verdict};
use crate::clauses::Relax as Tier;
use crate::optimizer::arena::Arena;
use crate::optimizer::spec::OpSpec;

/// The rules of the family `affine`.
pub const RULES: &[Rule] = &[
    Rule::exact("float-float", float_float).always(),
    Rule::exact("float-normalize", float_normalize),
    Rule::exact("normalize-normalize", normalize_normalize).at(Tier::Numeric),
    Rule::exact("affine-past-resample", affine_past_resample).at(Tier::Numeric),
];

const UNKNOWN_TYPE: &str = "the image's element type is not known";

/// Drops `to_float` above a function that already yields floats of the same type, since `to_float`
/// then changes nothing.
fn float_float(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    in_place(f, g)?;
    let (Some(ImageCall::ToFloat(above)), Some(call)) = (f.image_call(), g.image_call()) else {
        return None;
    };
    let below = match (call, site.image(arena).map(|image| image.dtype)) {
        (ImageCall::ToFloat(dtype), _) => Ok(dtype),
        // `normalize` converts an image of bytes to single-precision floats.
        (ImageCall::Normalize(..), Some(Dtype::U8)) => Ok(Dtype::F32),
        (ImageCall::Normalize(..), Some(float)) => Ok(float),
        (ImageCall::Normalize(..), None) => Err(UNKNOWN_TYPE),
        _ => return None,
    };
    let same = below.and_then(|below| {
        if below == above {
            Ok(())
        } else {
            Err("the two functions yield floats of different types")
        }
    });
    let refused = [unpinned(f, g), same].into_iter().find_map(Result::err);
    Some(refused.map_or_else(|| Ok(vec![site.inner]), Err))
}

/// Drops `to_float` below `normalize`, since `normalize` itself converts bytes to single-precision
/// floats. Refuses if `to_float` reads or yields floats of half precision, since values would then
/// be rounded differently.
fn float_normalize(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    in_place(f, g)?;
    let (Some(ImageCall::Normalize(..)), Some(ImageCall::ToFloat(dtype))) =
        (f.image_call(), g.image_call())
    else {
        return None;
    };
    let same = match (dtype, site.image(arena).map(|image| image.dtype)) {
        (Dtype::F32, Some(Dtype::U8 | Dtype::F32)) => Ok(()),
        (_, None) => Err(UNKNOWN_TYPE),
        _ => Err("dropping to_float would change where values are rounded to half precision"),
    };
    let refused = [unpinned(f, g), same].into_iter().find_map(Result::err);
    Some(refused.map_or_else(|| Ok(vec![site.outer]), Err))
}

/// Merges two calls of `normalize`: `((x - m) / s - n) / t` is equal to `(x - (m + s n)) / (s t)`,
/// up to rounding.
fn normalize_normalize(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    in_place(f, g)?;
    let (Some(ImageCall::Normalize(n, t)), Some(ImageCall::Normalize(m, s))) =
        (f.image_call(), g.image_call())
    else {
        return None;
    };
    if let Err(pinned) = unpinned(f, g) {
        return Some(Err(pinned));
    }
    let channels = [&m, &s, &n, &t].into_iter().map(Vec::len).max()?;
    // If a call has only one number, the number applies to all channels.
    let at = |values: &[f64], channel: usize| values.get(channel).or(values.first()).copied();
    let mut mean = Vec::with_capacity(channels);
    let mut std = Vec::with_capacity(channels);
    for c in 0..channels {
        let (m, s, n, t) = (at(&m, c)?, at(&s, c)?, at(&n, c)?, at(&t, c)?);
        mean.push(m + s * n);
        std.push(s * t);
    }
    let single = |v: &f64| (*v as f32).is_finite();
    if !mean.iter().chain(&std).all(single)
        || std.iter().any(|s| (*s as f32).abs() < f32::MIN_POSITIVE)
    {
        return Some(Err(
            "the merged means or standard deviations do not fit single precision",
        ));
    }
    let call = normalize(g.first_argument()?.clone(), &mean, &std)?;
    Some(Ok(vec![arena.over(site.outer, call)?]))
}

/// Swaps a function that maps samples `x` to `a x + b` with a function that averages pixels: a mean
/// of `a x + b` is `a` times the mean of `x` plus `b`, up to rounding. Images of bytes or
/// half-precision floats are refused: a mean is rounded to the image's type, so the result would
/// differ visibly.
fn affine_past_resample(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    in_place(f, g)?;
    let affine = |spec: &OpSpec| spec.facts().is_some_and(|facts| facts.affine);
    let averages = |spec: &OpSpec| spec.facts().is_some_and(|facts| facts.averages);
    if !(affine(f) && averages(g) || averages(f) && affine(g)) {
        return None;
    }
    let single = match site.image(arena).map(|image| image.dtype) {
        Some(Dtype::F32) => Ok(()),
        Some(Dtype::F16) => Err(
            "averages of half-precision floats are rounded to half precision, so the order matters",
        ),
        Some(_) => Err("averages of bytes are rounded to bytes, so the order matters"),
        None => Err(UNKNOWN_TYPE),
    };
    Some(swapped(
        site,
        &[unpinned(f, g), single, not_both_fallible(f, g)],
    ))
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::lit;
    use insta::assert_snapshot;

    use crate::optimizer::rules::tests::{assert_same_bytes, call, image, plain, said};
    use forebay_udfs::Dtype;

    #[test]
    fn floats_made_floats() {
        let rule = "float-float";
        let (bytes, floats) = (image(Dtype::U8, 8, 10), image(Dtype::F32, 8, 10));
        let (float, half) = (plain("to_float"), call("to_float", [lit("f16")]));
        let normal = call("normalize", [lit("imagenet")]);
        assert_snapshot!(said(rule, &float, &float, None), @"x = to_float(x)");
        assert_snapshot!(said(rule, &normal, &float, Some(bytes)), @"x = normalize(x, 'imagenet')");
        assert_snapshot!(said(rule, &half, &float, None), @"no: the two functions yield floats of different types");
        assert_snapshot!(said(rule, &normal, &half, Some(floats)), @"no: the two functions yield floats of different types");
        assert_snapshot!(said(rule, &normal, &float, None), @"no: the image's element type is not known");
        for below in [&float, &normal] {
            assert_same_bytes(rule, below, &float, bytes);
            assert_same_bytes(rule, below, &float, floats);
        }
    }
}
