//! Tests of the rules over images. Each rule has a case that the rule rewrites and a case that the
//! rule refuses. The calls before and after a rewrite are run over images, and the results are
//! compared.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, RecordBatch, UInt8Array,
    UInt32Array, UInt64Array,
};
use arrow::datatypes::{DataType, FieldRef, Float32Type, Schema, UInt8Type};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, lit};
use datafusion::prelude::SessionContext;
use forebay_udfs::draw::pass_key;
use forebay_udfs::hash::mix64;
use forebay_udfs::row::{RowColumn, row_field};
use forebay_udfs::{Dtype, ImageLayout, TensorType, bind_stream, is_random};
use insta::assert_snapshot;

use super::{Site, Tier, rule_families, rules};
use crate::optimizer::arena::Arena;
use crate::rows::fallible::fallible;
use crate::rows::slot as column;

/// Number of images per batch.
const IMAGES: usize = 3;

pub(super) fn call(name: &str, constants: impl IntoIterator<Item = Expr>) -> Expr {
    let functions = forebay_udfs::functions();
    let func = functions.into_iter().find(|f| f.name() == name).unwrap();
    let args = std::iter::once(column("x")).chain(constants).collect();
    let call = ScalarFunction { func, args };
    if is_random(name) {
        bind_stream(call, 0).unwrap()
    } else {
        Expr::ScalarFunction(call)
    }
}

/// A call of the function `name` over an image, with the integer arguments `numbers`.
fn sized<const N: usize>(name: &str, numbers: [i64; N]) -> Expr {
    call(name, numbers.map(lit))
}

pub(super) fn plain(name: &str) -> Expr {
    call(name, [])
}

fn list(values: &[f64]) -> Expr {
    let values: Vec<ScalarValue> = values.iter().map(|&v| v.into()).collect();
    let list = ScalarValue::new_list_nullable(&values, &DataType::Float64);
    lit(ScalarValue::List(list))
}

pub(super) fn image(dtype: Dtype, height: usize, width: usize) -> TensorType {
    TensorType {
        dtype,
        channels: 3,
        layout: ImageLayout::Hwc,
        shape: Some((height, width)),
    }
}

/// Applies the rule named `rule` to the calls `outer` and `inner` of an image. Returns the
/// rewritten calls, lowest first, or the refusal.
fn apply(
    rule: &str,
    inner: &Expr,
    outer: &Expr,
    image: Option<TensorType>,
    pin: bool,
) -> Option<Result<Vec<(Expr, String)>, &'static str>> {
    let mut arena = Arena::default();
    let slot = arena.slot("x");
    let [inner, mut outer] = [inner, outer].map(|expr| {
        let can_fail = fallible(expr, &DFSchema::empty());
        arena.row(slot, expr.clone(), can_fail)
    });
    if pin {
        outer = arena.pin(outer);
    }
    let below = image.map(|image| arena.type_of(&image.to_field("x")));
    let site = Site {
        below,
        ..Site::of(outer, inner)
    };
    let rule = rules().into_iter().find(|r| r.name == rule).unwrap();
    let ops = match (rule.apply)(&mut arena, site)? {
        Ok(ops) => ops,
        Err(why) => return Some(Err(why)),
    };
    let shown = ops.into_iter().map(|op| {
        let spec = arena.spec(op);
        (spec.expr().unwrap().clone(), spec.text.clone())
    });
    Some(Ok(shown.collect()))
}

/// The outcome of [`apply`] as text: the rewritten calls, or `no:` and the refusal.
pub(super) fn said(rule: &str, inner: &Expr, outer: &Expr, image: Option<TensorType>) -> String {
    match apply(rule, inner, outer, image, false) {
        None => "another rule's".to_owned(),
        Some(Err(why)) => format!("no: {why}"),
        Some(Ok(ops)) => {
            let texts: Vec<String> = ops.into_iter().map(|(_, text)| text).collect();
            texts.join("; ")
        }
    }
}

/// A column of test images: a smooth picture with edges if `smooth`, and noise otherwise.
fn pixels(image: &TensorType, smooth: bool) -> ArrayRef {
    let (height, width) = image.shape.unwrap();
    let count = IMAGES * height * width * image.channels;
    let byte = |i: usize| -> u8 {
        if !smooth {
            return mix64(i as u64) as u8;
        }
        let pixel = i / image.channels;
        let (x, y) = (pixel % width, pixel / width % height);
        let wave =
            libm::sin(x as f64 * 5.0 / width as f64) * libm::cos(y as f64 * 4.0 / height as f64);
        (127.0 + 120.0 * wave) as u8
    };
    let values: ArrayRef = match image.dtype {
        Dtype::U8 => Arc::new(UInt8Array::from_iter_values((0..count).map(byte))),
        _ => Arc::new(Float32Array::from_iter_values(
            (0..count).map(|i| f32::from(byte(i)) / 255.0),
        )),
    };
    let DataType::FixedSizeList(item, size) = image.data_type() else {
        panic!("of one shape")
    };
    Arc::new(FixedSizeListArray::new(item, size, values, None))
}

fn hidden_rows() -> ArrayRef {
    let n = IMAGES as u64;
    let rows = RowColumn {
        position: UInt64Array::from_iter_values(0..n),
        file: UInt32Array::from_iter_values(0..n as u32),
        row: UInt64Array::from_iter_values(0..n),
        child: UInt32Array::from_iter_values((0..n).map(|_| 0)),
        hash: UInt64Array::from_iter_values((0..n).map(mix64)),
        pass: UInt64Array::from_iter_values((0..n).map(|_| pass_key(7, 0))),
    };
    rows.to_array().unwrap()
}

/// Applies `calls`, in order, to a column of test images.
fn run(calls: &[Expr], image: &TensorType, smooth: bool) -> (ArrayRef, FieldRef) {
    let mut field: FieldRef = Arc::new(image.to_field("x"));
    let mut values = pixels(image, smooth);
    let context = SessionContext::new();
    for call in calls {
        let fields = vec![Arc::clone(&field), row_field()];
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![values, hidden_rows()]).unwrap();
        let over = DFSchema::try_from(Arc::clone(&schema)).unwrap();
        let physical = context.create_physical_expr(call.clone(), &over).unwrap();
        let made = physical.return_field(&schema).unwrap();
        field = Arc::new(made.as_ref().clone().with_name("x"));
        let value = physical.evaluate(&batch).unwrap();
        values = value.into_array(IMAGES).unwrap();
    }
    (values, field)
}

/// The samples of all images of a column, as `f64`.
fn samples(images: &ArrayRef) -> Vec<f64> {
    let values = images.as_fixed_size_list().values();
    match values.data_type() {
        DataType::UInt8 => {
            let values = values.as_primitive::<UInt8Type>().values();
            values.iter().map(|&v| f64::from(v) / 255.0).collect()
        }
        _ => {
            let values = values.as_primitive::<Float32Type>().values();
            values.iter().map(|&v| f64::from(v)).collect()
        }
    }
}

/// Mean and maximum distance between samples of the rewritten and of the written calls, where 1 is
/// the full range of a sample. `None` if the rule refuses.
fn distance(
    rule: &str,
    inner: &Expr,
    outer: &Expr,
    image: TensorType,
    smooth: bool,
) -> Option<(f64, f64)> {
    let rewritten = apply(rule, inner, outer, Some(image), false)?.ok()?;
    let rewritten: Vec<Expr> = rewritten.into_iter().map(|(expr, _)| expr).collect();
    let (wanted, wanted_field) = run(&[inner.clone(), outer.clone()], &image, smooth);
    let (found, field) = run(&rewritten, &image, smooth);
    assert_eq!(field, wanted_field, "{rule}: {outer} over {inner}");
    let (wanted, found) = (samples(&wanted), samples(&found));
    let far = wanted.iter().zip(&found).map(|(a, b)| (a - b).abs());
    let most = far.clone().fold(0.0, f64::max);
    Some((far.sum::<f64>() / wanted.len() as f64, most))
}

#[track_caller]
pub(super) fn assert_same_bytes(rule: &str, inner: &Expr, outer: &Expr, image: TensorType) {
    let far = distance(rule, inner, outer, image, false);
    assert_eq!(far, Some((0.0, 0.0)), "{rule}: {outer} over {inner}");
}

/// A pseudorandom number from `low` to `high` inclusive, determined by `seed`.
fn pick(seed: u64, low: i64, high: i64) -> i64 {
    low + (mix64(seed) % (high - low + 1) as u64) as i64
}

fn any_crop(seed: u64) -> Expr {
    let at = |n: u64, low, high| pick(seed * 16 + n, low, high);
    match at(0, 0, 3) {
        0 => sized("center_crop", [at(1, 1, 12), at(2, 1, 12)]),
        _ => {
            let place = [at(3, -4, 6), at(4, -4, 6)];
            sized("crop", [place[0], place[1], at(5, 1, 9), at(6, 1, 9)])
        }
    }
}

#[test]
fn crops_of_crops() {
    let rule = "crop-crop";
    let photo = image(Dtype::U8, 8, 10);
    let inner = sized("crop", [-2, 1, 9, 9]);
    let outer = sized("crop", [1, 2, 5, 6]);
    assert_snapshot!(said(rule, &inner, &outer, None), @"x = crop(x, -1, 3, 5, 6)");
    assert_snapshot!(said(rule, &inner, &sized("crop", [5, 2, 5, 6]), None), @"no: the upper crop reaches outside the rectangle of the lower crop, where it yields zeros");
    assert_snapshot!(said(rule, &sized("center_crop", [4, 4]), &sized("center_crop", [2, 2]), None), @"no: the image's size is not known from the plan");
    assert_snapshot!(said(rule, &sized("center_crop", [4, 4]), &sized("center_crop", [2, 2]), Some(photo)), @"x = crop(x, 3, 4, 2, 2)");
    let far = sized("crop", [60_000, 0, 9_000, 1]);
    assert_snapshot!(said(rule, &far, &sized("crop", [8_000, 0, 1, 1]), None), @"no: the rectangle would begin at an offset that is too large for a crop");
    let mut merged = 0;
    for seed in 0..200 {
        let (inner, outer) = (any_crop(seed), any_crop(seed + 1000));
        if let Some(far) = distance(rule, &inner, &outer, photo, false) {
            assert_eq!(far.1, 0.0, "{outer} over {inner}");
            merged += 1;
        }
    }
    assert!(merged > 10, "{merged}");
}

#[test]
fn crops_past_mirrorings() {
    let rule = "crop-past-flip";
    let photo = image(Dtype::U8, 8, 10);
    let corner = sized("crop", [-1, 1, 4, 5]);
    assert_snapshot!(said(rule, &plain("hflip"), &corner, Some(photo)), @"x = crop(x, -1, 4, 4, 5); x = hflip(x)");
    assert_snapshot!(said(rule, &corner, &plain("vflip"), Some(photo)), @"x = vflip(x); x = crop(x, 5, 1, 4, 5)");
    assert_snapshot!(said(rule, &plain("hflip"), &corner, None), @"no: the image's size is not known from the plan");
    assert_snapshot!(said(rule, &corner, &plain("random_hflip"), Some(photo)), @"no: the flip is random, and the crop's rectangle is not its own mirror image");
    let middle = sized("center_crop", [4, 4]);
    assert_snapshot!(said(rule, &middle, &plain("random_hflip"), Some(photo)), @"x = random_hflip(x, #0); x = center_crop(x, 4, 4)");
    let flips = ["hflip", "vflip", "random_hflip", "random_vflip"];
    let mut moved = BTreeMap::new();
    for seed in 0..80 {
        let flip = flips[(seed % 4) as usize];
        let (crop, flipped) = (any_crop(seed), plain(flip));
        for (inner, outer) in [(&crop, &flipped), (&flipped, &crop)] {
            if let Some(far) = distance(rule, inner, outer, photo, false) {
                assert_eq!(far.1, 0.0, "{outer} over {inner}");
                *moved.entry(flip).or_insert(0) += 1;
            }
        }
    }
    assert!(moved.len() == 4 && moved["hflip"] == 40, "{moved:?}");
}

#[test]
fn functions_of_pixels_past_moves_of_pixels() {
    let rule = "pointwise-past-select";
    let photo = image(Dtype::U8, 8, 10);
    let shift = call(
        "normalize",
        [list(&[0.5, 0.4, 0.3]), list(&[0.2, 0.3, 0.4])],
    );
    let inside = sized("crop", [1, 2, 4, 5]);
    assert_snapshot!(said(rule, &inside, &shift, Some(photo)), @"x = normalize(x, [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]); x = crop(x, 1, 2, 4, 5)");
    assert_snapshot!(said(rule, &sized("crop", [5, 2, 4, 5]), &shift, Some(photo)), @"no: one of them mixes pixels, or adds pixels");
    assert_snapshot!(said(rule, &inside, &shift, None), @"no: one of them mixes pixels, or adds pixels");
    assert_snapshot!(said(rule, &plain("hflip"), &plain("vflip"), None), @"no: only a function of single pixels and a function that moves pixels can be swapped");
    assert_snapshot!(said(rule, &sized("random_crop", [3, 3, 2]), &shift, Some(photo)), @"no: one of them mixes pixels, or adds pixels");
    let points = [
        shift,
        plain("to_float"),
        plain("grayscale"),
        call("random_grayscale", [lit(0.5)]),
        sized("solarize", [100]),
        sized("posterize", [3]),
    ];
    let nearest = call("resize", [lit(11_i64), lit(5_i64), lit("nearest")]);
    let moves = [
        plain("hflip"),
        plain("vflip"),
        plain("random_hflip"),
        plain("random_vflip"),
        inside,
        sized("center_crop", [3, 6]),
        sized("random_crop", [3, 3]),
        nearest,
    ];
    for point in &points {
        for moved in &moves {
            assert_same_bytes(rule, moved, point, photo);
            assert_same_bytes(rule, point, moved, photo);
        }
    }
}

#[test]
fn mirrorings_of_mirrorings() {
    let photo = image(Dtype::U8, 5, 4);
    assert_same_bytes("flip-flip", &plain("hflip"), &plain("hflip"), photo);
    assert_same_bytes("flip-flip", &plain("vflip"), &plain("vflip"), photo);
    let (flip, drawn) = (plain("hflip"), plain("random_hflip"));
    assert_snapshot!(said("flip-flip", &drawn, &drawn, None), @"no: only two flips along the same axis cancel, and neither may be random");
    assert_snapshot!(said("flip-flip", &flip, &drawn, None), @"no: only two flips along the same axis cancel, and neither may be random");
}

#[test]
fn floats_normalised() {
    let rule = "float-normalize";
    let normal = call("normalize", [lit("imagenet")]);
    let float = plain("to_float");
    let half = call("to_float", [lit("f16")]);
    let (bytes, floats) = (image(Dtype::U8, 8, 10), image(Dtype::F32, 8, 10));
    assert_snapshot!(said(rule, &float, &normal, Some(bytes)), @"x = normalize(x, 'imagenet')");
    assert_snapshot!(said(rule, &half, &normal, Some(bytes)), @"no: dropping to_float would change where values are rounded to half precision");
    assert_snapshot!(said(rule, &float, &normal, Some(image(Dtype::F16, 8, 10))), @"no: dropping to_float would change where values are rounded to half precision");
    assert_snapshot!(said(rule, &float, &normal, None), @"no: the image's element type is not known");
    assert_same_bytes(rule, &float, &normal, bytes);
    assert_same_bytes(rule, &float, &normal, floats);
}

#[test]
fn normalised_twice() {
    let rule = "normalize-normalize";
    let once = call("normalize", [list(&[0.5, 0.4, 0.3]), lit(0.25)]);
    let twice = call("normalize", [lit(0.1), list(&[2.0, 0.5, 4.0])]);
    assert_snapshot!(said(rule, &once, &twice, None), @"x = normalize(x, [0.525, 0.42500000000000004, 0.325], [0.5, 0.125, 1.0])");
    let tiny = call("normalize", [lit(0.0), lit(1e-30)]);
    assert_snapshot!(said(rule, &tiny, &tiny, None), @"no: the merged means or standard deviations do not fit single precision");
    for dtype in [Dtype::U8, Dtype::F32] {
        let far = distance(rule, &once, &twice, image(dtype, 8, 10), false);
        assert!(far.is_some_and(|(_, most)| most < 1e-5), "{far:?}");
    }
}

#[test]
fn affine_functions_past_means() {
    let rule = "affine-past-resample";
    let normal = call("normalize", [lit("imagenet")]);
    let floats = image(Dtype::F32, 18, 20);
    let small = sized("resize", [7, 9]);
    assert_snapshot!(said(rule, &small, &normal, Some(floats)), @"x = normalize(x, 'imagenet'); x = resize(x, 7, 9)");
    assert_snapshot!(said(rule, &small, &normal, Some(image(Dtype::U8, 18, 20))), @"no: averages of bytes are rounded to bytes, so the order matters");
    assert_snapshot!(said(rule, &small, &normal, None), @"no: the image's element type is not known");
    let resized = |filter| call("resize", [lit(7_i64), lit(9_i64), lit(filter)]);
    let means = [
        small,
        resized("bicubic"),
        resized("lanczos"),
        sized("resize_shortest", [9]),
        sized("random_resized_crop", [8, 8]),
        call("gaussian_blur", [lit(5_i64)]),
    ];
    for mean in means {
        for (inner, outer) in [(&mean, &normal), (&normal, &mean)] {
            let far = distance(rule, inner, outer, floats, false);
            assert!(
                far.is_some_and(|(_, most)| most < 1e-4),
                "{outer} over {inner}: {far:?}"
            );
        }
    }
}

#[test]
fn resizes_of_resizes() {
    let rule = "resize-resize";
    let (large, small) = (sized("resize", [40, 44]), sized("resize", [15, 18]));
    assert_snapshot!(said(rule, &large, &small, None), @"x = resize(x, 15, 18)");
    assert_snapshot!(said(rule, &small, &large, None), @"no: the lower resize yields a smaller image than the upper resize");
    // The lower call may raise an error on a row, which would be lost.
    assert_snapshot!(said(rule, &sized("resize_shortest", [40]), &small, None), @"another rule's");
    let nearest = call("resize", [lit(15_i64), lit(18_i64), lit("nearest")]);
    assert_snapshot!(said(rule, &large, &nearest, None), @"no: the two resizes use different interpolations");
    let far = distance(rule, &large, &small, image(Dtype::U8, 64, 72), true);
    assert!(far.is_some_and(|(mean, _)| mean < 0.01), "{far:?}");
}

#[test]
fn crops_of_resizes() {
    let rule = "crop-past-resize";
    let photo = image(Dtype::U8, 96, 80);
    let resize = sized("resize", [48, 48]);
    let corner = sized("crop", [2, 30, 10, 12]);
    assert_snapshot!(said(rule, &resize, &corner, Some(photo)), @"x = crop(x, 2, 48, 24, 24); x = resize(x, 12, 14, 'bilinear'); x = crop(x, 1, 1, 10, 12)");
    assert_snapshot!(said(rule, &resize, &corner, None), @"no: the image's size is not known from the plan");
    assert_snapshot!(said(rule, &resize, &sized("center_crop", [47, 47]), Some(photo)), @"no: the cropped part is computed from the whole image");
    assert_snapshot!(said(rule, &resize, &sized("crop", [40, 0, 10, 10]), Some(photo)), @"no: the crop reaches outside the image");
    let mut moved = 0;
    for seed in 0..30 {
        let at = |n: u64, low, high| pick(seed * 16 + n, low, high);
        let crop = sized(
            "crop",
            [at(0, 0, 30), at(1, 0, 30), at(2, 4, 18), at(3, 4, 18)],
        );
        let filter = ["bilinear", "bicubic", "lanczos", "nearest"][(seed % 4) as usize];
        let size = [lit(at(4, 48, 70)), lit(at(5, 48, 70)), lit(filter)];
        let resize = call("resize", size);
        if let Some((mean, _)) = distance(rule, &resize, &crop, photo, true) {
            assert!(mean < 0.03, "{crop} over {resize}: {mean}");
            moved += 1;
        }
    }
    assert!(moved > 20, "{moved}");
}

#[test]
fn what_decoders_do_themselves() {
    let decode = plain("decode_image");
    let strict = call("decode_image", [lit("strict")]);
    let gray = said("gray-into-decode", &strict, &plain("grayscale"), None);
    assert_snapshot!(gray, @"no: strict decoding decodes the colors, too");
    let said = |rule, outer| said(rule, &decode, &outer, None);
    assert_snapshot!(said("gray-into-decode", plain("grayscale")), @"x = decode_image(x, 'luma')");
    assert_snapshot!(said("gray-into-decode", sized("grayscale", [3])), @"no: grayscale yields three equal channels here, but decoded luma is one channel");
    assert_snapshot!(said("crop-into-decode", sized("crop", [0, 0, 8, 8])), @"no: decoding needs no rewrite: it yields only the pixels that the crop reads");
    assert_snapshot!(said("resize-into-decode", sized("resize", [8, 8])), @"no: no decoder scales while it decodes");
}

#[test]
fn functions_of_one_image_swapped_by_relaxation() {
    let rule = "relaxed-swap";
    let (small, flip) = (sized("resize", [7, 9]), plain("hflip"));
    assert_snapshot!(said(rule, &small, &flip, None), @"x = hflip(x); x = resize(x, 7, 9)");
    let nearest = call("resize", [lit(7_i64), lit(9_i64), lit("nearest")]);
    assert_snapshot!(said(rule, &sized("crop", [0, 0, 9, 9]), &nearest, None), @"no: both change the image's size");
    assert_snapshot!(said(rule, &sized("crop", [0, 0, 9, 9]), &small, None), @"no: both cut, resize or mix pixels, so their order decides what the image shows");
    let far = distance(rule, &small, &flip, image(Dtype::U8, 18, 20), true);
    assert!(far.is_some_and(|(mean, _)| mean < 0.01), "{far:?}");
}

#[test]
fn no_rule_touches_what_is_pinned() {
    let photo = Some(image(Dtype::F32, 40, 40));
    let (crop, resize) = (sized("crop", [1, 1, 8, 8]), sized("resize", [20, 20]));
    let (float, normal) = (plain("to_float"), call("normalize", [lit("imagenet")]));
    let cases = [
        ("crop-crop", &crop, &crop),
        ("crop-past-flip", &plain("hflip"), &crop),
        ("resize-resize", &resize, &resize),
        ("crop-past-resize", &resize, &crop),
        ("float-normalize", &float, &normal),
        ("normalize-normalize", &normal, &normal),
        ("affine-past-resample", &resize, &normal),
        ("pointwise-past-select", &plain("hflip"), &normal),
        ("relaxed-swap", &resize, &normal),
        (
            "gray-into-decode",
            &plain("decode_image"),
            &plain("grayscale"),
        ),
        ("crop-into-decode", &plain("decode_image"), &crop),
        ("resize-into-decode", &plain("decode_image"), &resize),
    ];
    for (rule, inner, outer) in cases {
        let refused = apply(rule, inner, outer, photo, true);
        assert!(
            matches!(refused, Some(Err("one of them is pinned"))),
            "{rule}"
        );
    }
}

#[test]
fn filters_below_decoding() {
    let mut arena = Arena::default();
    let (slot, label) = (arena.slot("x"), arena.slot("label"));
    assert_ne!(slot, label);
    let decode = arena.row(slot, plain("decode_image"), true);
    let few = arena.filter(column("label").gt(lit(3)), false);
    let seen = arena.filter(column("x").is_not_null(), false);
    let pinned = arena.pin(few);
    let rule = |name: &str| rules().into_iter().find(|r| r.name == name).unwrap();
    let below = rule("filter-below-decode");
    let mut ask = |outer| (below.apply)(&mut arena, Site::of(outer, decode));
    assert_eq!(ask(few), Some(Ok(vec![few, decode])));
    assert_eq!(
        ask(seen),
        Some(Err("the predicate reads the decoded pixels"))
    );
    assert_eq!(ask(pinned), Some(Err("one of them is pinned")));
    let other = rule("filter-below-row");
    assert_eq!((other.apply)(&mut arena, Site::of(few, decode)), None);
}

#[test]
fn functions_of_something_made_of_an_image_are_left_alone() {
    let photo = Some(image(Dtype::F32, 40, 40));
    let on = |name: &str, image: Expr, constants: Vec<Expr>| match call(name, constants) {
        Expr::ScalarFunction(mut call) => {
            call.args[0] = image;
            Expr::ScalarFunction(call)
        }
        other => other,
    };
    let other = || column("x").is_null().is_true();
    let made = on("hflip", other(), Vec::new());
    let normal = call("normalize", [lit("imagenet")]);
    assert!(apply("pointwise-past-select", &made, &normal, photo, false).is_none());
    let sizes = [0_i64, 0, 4, 4].map(lit);
    let cut = on("crop", other(), sizes.to_vec());
    assert!(apply("crop-crop", &cut, &call("crop", sizes), photo, false).is_none());
    let gray = on("grayscale", other(), Vec::new());
    let decode = plain("decode_image");
    assert!(apply("gray-into-decode", &decode, &gray, photo, false).is_none());
}

/// Each rule has a table row in `docs/rules.md` that begins `| name | tier |`.
#[test]
fn the_documentation_lists_exactly_the_rules_that_exist() {
    let documented: BTreeMap<&str, &str> = include_str!("../../../../docs/rules.md")
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
            Some((cells.next()?.strip_suffix('`')?, cells.next()?))
        })
        .collect();
    let tiers: BTreeMap<&str, Tier> = rules().iter().map(|r| (r.name, r.tier)).collect();
    let letter = |name: &str| match tiers.get(name) {
        None | Some(Tier::Exact) => "E",
        Some(Tier::Numeric) => "N",
        Some(Tier::Order) => "O",
        Some(Tier::Statistical) => "S",
    };
    let families = rule_families();
    let exist: BTreeMap<&str, &str> = families.iter().map(|&(n, _)| (n, letter(n))).collect();
    assert_eq!(exist.len(), families.len(), "two rules of one name");
    assert_eq!(documented, exist);
}
