//! Rules of functions that are affine in each sample: `to_float`, `normalize`.

use forebay_udfs::Dtype;
use forebay_udfs::image::{ImageCall, normalize};

use super::conditions::{in_place, not_both_fallible, swapped, unpinned};
use super::rule::{Rule, Site, Verdict};
use crate::clauses::Relax as Tier;
use crate::optimizer::arena::Arena;
use crate::optimizer::spec::OpSpec;

/// The family's rules.
pub const RULES: &[Rule] = &[
    Rule::exact("float-float", float_float).always(),
    Rule::exact("float-normalize", float_normalize),
    Rule::exact("normalize-normalize", normalize_normalize).at(Tier::Numeric),
    Rule::exact("affine-past-resample", affine_past_resample).at(Tier::Numeric),
];

const UNKNOWN_TYPE: &str = "the image's element type is not known";

/// Drops `to_float` of an image that is of the resulting float type already: `to_float` then
/// changes nothing.
fn float_float(arena: &mut Arena, site: Site) -> Option<Verdict> {
    let (f, g) = (arena.spec(site.outer), arena.spec(site.inner));
    in_place(f, g)?;
    let (Some(ImageCall::ToFloat(above)), Some(call)) = (f.image_call(), g.image_call()) else {
        return None;
    };
    let below = match (call, site.image(arena).map(|image| image.dtype)) {
        (ImageCall::ToFloat(dtype), _) => Ok(dtype),
        // From bytes, `normalize` makes floats of single precision.
        (ImageCall::Normalize(..), Some(Dtype::U8)) => Ok(Dtype::F32),
        (ImageCall::Normalize(..), Some(float)) => Ok(float),
        (ImageCall::Normalize(..), None) => Err(UNKNOWN_TYPE),
        _ => return None,
    };
    let same = below.and_then(|below| {
        if below == above {
            Ok(())
        } else {
            Err("it makes floats of another type")
        }
    });
    let refused = [unpinned(f, g), same].into_iter().find_map(Result::err);
    Some(refused.map_or_else(|| Ok(vec![site.inner]), Err))
}

/// Drops a conversion to floats below `normalize`, which converts bytes itself, to single
/// precision. Half precision is refused, since it rounds the floats in between.
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
        _ => Err("half precision rounds the floats in between"),
    };
    let refused = [unpinned(f, g), same].into_iter().find_map(Result::err);
    Some(refused.map_or_else(|| Ok(vec![site.outer]), Err))
}

/// `((x - m) / s - n) / t` is `(x - (m + s n)) / (s t)`, up to rounding.
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
    // A single number applies to all channels.
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
        return Some(Err("the numbers of both in one leave single precision"));
    }
    let call = normalize(g.first_argument()?.clone(), &mean, &std)?;
    Some(Ok(vec![arena.over(site.outer, call)?]))
}

/// Moves an affine function past a function that averages pixels, in either direction: a mean of
/// `a x + b` is `a` times the mean plus `b`, up to rounding. Means of bytes or half floats are
/// rounded to their type, which would show.
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
        Some(Dtype::F16) => Err("means of half floats are rounded to half floats"),
        Some(_) => Err("means of bytes are rounded to bytes"),
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
        assert_snapshot!(said(rule, &half, &float, None), @"no: it makes floats of another type");
        assert_snapshot!(said(rule, &normal, &half, Some(floats)), @"no: it makes floats of another type");
        assert_snapshot!(said(rule, &normal, &float, None), @"no: the image's element type is not known");
        for below in [&float, &normal] {
            assert_same_bytes(rule, below, &float, bytes);
            assert_same_bytes(rule, below, &float, floats);
        }
    }
}
