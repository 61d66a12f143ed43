//! Tests of image functions as a plan runs them, alone and fused.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{FieldRef, Float32Type, Schema, UInt8Type};
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, ExprSchemable, col, lit};
use image::ImageFormat;
use proptest::prelude::*;

use super::input::ImageKind;
use super::run::run;
use super::stage::ProgramStage;
use super::testing::{
    batch, call, call_on, decoded, encoded, evaluate, failure, list, op, picture, pictures,
};
use super::{SplitChain, fuse, split_widening};
use crate::tensor::TensorType;

/// The image expression of the README's pipeline.
fn training() -> Expr {
    let crop = call_on("random_resized_crop", 0, vec![decoded(), lit(24), lit(20)]);
    call(
        "normalize",
        vec![call_on("random_hflip", 1, vec![crop]), lit("imagenet")],
    )
}

#[test]
fn a_pipeline_is_fused_into_one_program_with_the_same_field_and_bytes() {
    let batch = pictures();
    let fused = fuse(training()).unwrap();
    assert!(fused.transformed);
    assert_eq!(
        fused.data.to_string(),
        "image_program[decode_image > random_resized_crop 24x20 #0 > random_hflip 0.5 #1 > normalize]\
         (image, __row)",
    );
    let (expected, field) = evaluate(training(), &batch).unwrap();
    let (found, fused_field) = evaluate(fused.data, &batch).unwrap();
    assert_eq!(field, fused_field);
    assert_eq!(&expected, &found);
    assert_eq!(
        TensorType::from_field(&field).unwrap().unwrap().to_string(),
        "f32[24, 20, 3]"
    );
    assert!(found.is_null(2) && found.null_count() == 1);
    let values = found
        .as_fixed_size_list()
        .values()
        .as_primitive::<Float32Type>();
    let (low, high) = values
        .iter()
        .flatten()
        .fold((0.0_f32, 0.0_f32), |(l, h), v| (l.min(v), h.max(v)));
    assert!(
        (-2.2..-1.0).contains(&low) && (1.0..2.7).contains(&high),
        "{low} {high}"
    );
}

/// Splits `expr` before its last functions, and evaluates one part after the other.
fn in_two_parts(expr: &Expr, batch: &RecordBatch) -> Option<(String, ArrayRef, FieldRef)> {
    let field_of = |expr: &Expr| {
        let schema = DFSchema::try_from(batch.schema()).ok()?;
        Some(expr.to_field(&schema).ok()?.1)
    };
    let SplitChain { first, last } = split_widening(expr, field_of)?;
    let shown = format!("{first} | {}", last.name());
    let (values, field) = evaluate(first, batch).unwrap();
    let field = Arc::new(field.as_ref().clone().with_name("slot"));
    let between = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![values]).unwrap();
    let (values, field) = evaluate(last.call(vec![col("slot")]), &between).unwrap();
    Some((shown, values, field))
}

#[test]
fn a_chain_is_split_before_the_functions_that_only_widen() {
    let batch = pictures();
    for written in [training(), call("to_chw", vec![training()])] {
        let (expected, field) = evaluate(written.clone(), &batch).unwrap();
        for expr in [written.clone(), fuse(written).unwrap().data] {
            let (shown, values, found) = in_two_parts(&expr, &batch).unwrap();
            assert!(
                shown.starts_with(
                    "image_program[decode_image > random_resized_crop 24x20 #0 > random_hflip 0.5 #1]\
                     (image, __row) | image_program[normalize"
                ),
                "{shown}"
            );
            assert_eq!((&values, &found), (&expected, &field));
        }
    }
}

#[test]
fn a_chain_that_ends_with_other_functions_is_not_split() {
    let batch = pictures();
    let crop = call("center_crop", vec![training(), lit(8), lit(8)]);
    let erased = call("random_erasing", vec![training()]);
    let bytes = call("center_crop", vec![decoded(), lit(8), lit(8)]);
    for expr in [crop, erased, bytes, col("label")] {
        assert_eq!(in_two_parts(&expr, &batch).map(|(shown, ..)| shown), None);
    }
}

#[test]
fn random_functions_follow_the_row_and_the_stream() {
    let all = pictures();
    let flips = |batch: &RecordBatch, stream| {
        let crop = call_on("random_crop", stream, vec![decoded(), lit(8), lit(8)]);
        evaluate(crop, batch).unwrap().0
    };
    let whole = flips(&all, 0);
    let half = flips(&all.slice(3, 2), 0);
    assert_eq!(&whole.slice(3, 2), &half);
    assert_ne!(&whole, &flips(&all, 1));
}

#[test]
fn failed_rows_are_null_and_named() {
    let files = [
        Some(encoded(picture(9, 9), ImageFormat::Png)),
        Some(b"no image".to_vec()),
        None,
        Some(encoded(picture(4, 4), ImageFormat::Png)),
    ];
    let batch = batch(&files);
    let crop = call("random_crop", vec![decoded(), lit(6), lit(6)]);
    let fused = fuse(crop).unwrap().data;
    let message = failure(fused.clone(), &batch);
    assert!(
        message.contains("decode_image: not a JPEG, PNG"),
        "{message}"
    );
    let Expr::ScalarFunction(call) = fused else {
        panic!()
    };
    let function = crate::row_function(&call.func).unwrap();
    let schema = batch.schema();
    let fields = vec![
        Arc::clone(&schema.fields()[0]),
        Arc::clone(&schema.fields()[2]),
    ];
    let scalars = [None, None];
    let return_field = call
        .func
        .return_field_from_args(datafusion::logical_expr::ReturnFieldArgs {
            arg_fields: &fields,
            scalar_arguments: &scalars,
        })
        .unwrap();
    let (values, failures) = function
        .invoke_rows(datafusion::logical_expr::ScalarFunctionArgs {
            args: vec![
                Arc::clone(batch.column(0)).into(),
                Arc::clone(batch.column(2)).into(),
            ],
            arg_fields: fields,
            number_rows: 4,
            return_field,
            config_options: Default::default(),
        })
        .unwrap();
    let valid: Vec<bool> = (0..4).map(|i| values.is_valid(i)).collect();
    assert_eq!(valid, [true, false, false, false]);
    assert_eq!(failures.len(), 2);
    assert_eq!(
        (failures[0].row, failures[0].operator.as_str()),
        (1, "decode_image")
    );
    assert_eq!(
        (failures[1].row, failures[1].operator.as_str()),
        (3, "random_crop")
    );
    assert!(
        failures[1]
            .cause
            .contains("larger than the padded image of 4 x 4")
    );
}

#[test]
fn failed_rows_leave_no_gap_between_images_of_many_shapes() {
    let mut cut = encoded(picture(20, 30), ImageFormat::Jpeg);
    cut.truncate(cut.len() - 2);
    let files = [
        Some(encoded(picture(9, 9), ImageFormat::Png)),
        Some(cut),
        None,
        Some(encoded(picture(30, 20), ImageFormat::Jpeg)),
        Some(b"no image".to_vec()),
        Some(encoded(picture(4, 5), ImageFormat::Png)),
    ];
    let stage = |call: Expr| ProgramStage {
        op: op(&call),
        stream: None,
    };
    let decode = stage(decoded());
    let float = stage(call("to_float", vec![decoded()]));
    for stages in [vec![decode.clone()], vec![decode, float]] {
        let column = |files: &[Option<Vec<u8>>]| {
            let images = Arc::clone(batch(files).column(0));
            run(&stages, &images, ImageKind::Encoded, None).unwrap()
        };
        let (all, failures) = column(&files);
        let failed: Vec<usize> = failures.iter().map(|failure| failure.row).collect();
        assert_eq!(failed, [1, 4]);
        for (row, file) in files.iter().enumerate() {
            let (alone, _) = column(std::slice::from_ref(file));
            assert_eq!(&all.slice(row, 1), &alone, "{row}");
        }
    }
}

#[test]
fn mistakes_are_found_by_the_plan() {
    let batch = pictures();
    for (expr, message) in [
        (
            call("resize", vec![col("label"), lit(2), lit(2)]),
            "resize: expected an image (decode_image gives one), found Int32",
        ),
        (
            call("resize", vec![col("image"), lit(2), lit(2)]),
            "decode it first: resize(decode_image(..))",
        ),
        (
            call("decode_image", vec![col("label")]),
            "decode_image: expected encoded bytes (Binary), found Int32",
        ),
        (
            call("decode_image", vec![decoded()]),
            "found the image u8[H, W, 3]",
        ),
        (
            call("decode_image", vec![col("image"), lit("cmyk")]),
            "mode must be one of 'rgb', 'gray', 'luma', 'lenient', 'strict', found 'cmyk'",
        ),
        (
            call("resize", vec![decoded(), lit(0), lit(2)]),
            "height must be a whole number from 1 to 65535, found 0",
        ),
        (
            call("resize", vec![decoded(), lit(2)]),
            "expected 3 to 4 arguments as in resize(image, height, width [, filter])",
        ),
        (
            call("resize", vec![decoded(), col("label"), lit(2)]),
            "height must be a literal number",
        ),
        (
            call("resize", vec![decoded(), lit(2), lit(2), lit("cubic")]),
            "filter must be one of",
        ),
        (
            call("random_hflip", vec![decoded(), lit(1.5)]),
            "p must be between 0 and 1, found 1.5",
        ),
        (
            call("normalize", vec![decoded(), list(&[0.5, 0.5]), lit(1.0)]),
            "mean must be one number, or one per channel, found 2 numbers for 3 channels",
        ),
        (
            call("normalize", vec![decoded(), lit(0.0), lit(0.0)]),
            "std must not be 0",
        ),
        (
            call("hflip", vec![call("to_chw", vec![decoded()])]),
            "call to_chw last",
        ),
        (
            call("grayscale", vec![decoded(), lit(2)]),
            "channels must be 1 or 3",
        ),
        (
            call("gaussian_blur", vec![decoded(), lit(4)]),
            "kernel must be odd",
        ),
        (
            call(
                "random_resized_crop",
                vec![decoded(), lit(4), lit(4), lit(1.0), lit(0.1)],
            ),
            "scale must be in ascending order",
        ),
        (
            call("resize", vec![decoded(), lit(60_000), lit(60_000)]),
            "above 178956970 pixels",
        ),
        (
            call("one_hot", vec![lit("a"), lit(2)]),
            "one_hot: expected an integer label, found Utf8",
        ),
    ] {
        let found = failure(expr, &batch);
        assert!(found.contains(message), "{found}\n    lacks: {message}");
    }
}

#[test]
fn headers_give_sizes_without_pixels() {
    let batch = pictures();
    let sizes = |name: &str| {
        let (values, _) = evaluate(call(name, vec![col("image")]), &batch).unwrap();
        values
            .as_primitive::<arrow::datatypes::Int32Type>()
            .iter()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        sizes("image_width"),
        [Some(64), Some(33), None, Some(50), Some(120)]
    );
    assert_eq!(
        sizes("image_height"),
        [Some(48), Some(57), None, Some(50), Some(40)]
    );
}

#[test]
fn one_hot_marks_the_label() {
    let (values, field) =
        evaluate(call("one_hot", vec![col("label"), lit(5)]), &pictures()).unwrap();
    let row = values.as_fixed_size_list().value(3);
    assert_eq!(
        row.as_primitive::<Float32Type>().values(),
        &[0.0, 0.0, 0.0, 1.0, 0.0]
    );
    assert!(field.metadata()["ARROW:extension:metadata"].contains("[5]"));
    let error = failure(call("one_hot", vec![col("label"), lit(2)]), &pictures());
    assert!(error.contains("label 2 is not within 0 to 1"), "{error}");
}

#[test]
fn random_numbers_are_spread_as_told() {
    let batch = batch(&vec![None; 4000]);
    let floats = |name: &str, args| {
        let (values, _) = evaluate(call(name, args), &batch).unwrap();
        values
            .as_primitive::<arrow::datatypes::Float64Type>()
            .values()
            .to_vec()
    };
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let uniform = floats("random_uniform", vec![lit(2.0), lit(4.0)]);
    assert!(uniform.iter().all(|v| (2.0..4.0).contains(v)) && (mean(&uniform) - 3.0).abs() < 0.05);
    assert!((mean(&floats("random_uniform", vec![])) - 0.5).abs() < 0.03);
    assert!((mean(&floats("random_normal", vec![lit(7), lit(2)])) - 7.0).abs() < 0.12);
    let (ints, _) = evaluate(call("random_int", vec![lit(-1), lit(1)]), &batch).unwrap();
    let ints = ints.as_primitive::<arrow::datatypes::Int64Type>().values();
    for value in -1..=1 {
        let count = ints.iter().filter(|&&v| v == value).count();
        assert!((1200..1470).contains(&count), "{value}: {count}");
    }
    let (bools, _) = evaluate(call("random_bool", vec![lit(0.25)]), &batch).unwrap();
    assert!((900..1100).contains(&bools.as_boolean().true_count()));
    let unbound = crate::functions()
        .into_iter()
        .find(|f| f.name() == "random_bool")
        .unwrap();
    assert!(failure(unbound.call(vec![]), &batch).contains("ran without a stream"));
}

#[test]
fn tensors_are_read_back() {
    let batch = pictures();
    let (values, field) = evaluate(decoded(), &batch).unwrap();
    let schema = Schema::new(vec![field.as_ref().clone().with_name("x")]);
    let stored = RecordBatch::try_new(schema.into(), vec![values]).unwrap();
    let crop = call("crop", vec![col("x"), lit(1), lit(2), lit(3), lit(4)]);
    let (found, _) = evaluate(crop, &stored.slice(1, 3)).unwrap();
    assert!(found.is_null(1));
    let picture = picture(33, 57);
    let row = found.as_fixed_size_list().value(0);
    assert_eq!(
        row.as_primitive::<UInt8Type>().values()[..3],
        picture.get_pixel(2, 1).0
    );
}

/// Returns a call of the `kind`-th image function around `inner`. Random functions draw from stream
/// `i`.
fn wrap(kind: u8, i: u64, inner: Expr) -> Expr {
    let on = |name, mut args: Vec<Expr>| {
        args.insert(0, inner.clone());
        call_on(name, i, args)
    };
    match kind {
        0 => on("resize", vec![lit(19), lit(23)]),
        1 => on("resize_shortest", vec![lit(21), lit("bicubic")]),
        2 => on("center_crop", vec![lit(16), lit(30)]),
        3 => on("crop", vec![lit(-2), lit(3), lit(17), lit(18)]),
        4 => on("pad", vec![list(&[1.0, 2.0]), lit(0.5), lit("reflect")]),
        5 => on("random_crop", vec![lit(12), lit(11), lit(4)]),
        6 => on(
            "random_resized_crop",
            vec![lit(14), lit(15), list(&[0.3, 1.0])],
        ),
        7 => on("hflip", vec![]),
        8 => on("vflip", vec![]),
        9 => on("random_hflip", vec![]),
        10 => on("random_vflip", vec![lit(0.3)]),
        11 => on("rotate", vec![lit(33), lit("bilinear"), lit(true)]),
        12 => on("random_rotate", vec![lit(20.0)]),
        13 => on("color_jitter", vec![lit(0.4), lit(0.4), lit(0.4), lit(0.1)]),
        14 => on("grayscale", vec![lit(3)]),
        15 => on("random_grayscale", vec![lit(0.5)]),
        16 => on("gaussian_blur", vec![lit(3)]),
        17 => on("solarize", vec![lit(0.5)]),
        18 => on("posterize", vec![lit(3)]),
        19 => on("random_erasing", vec![lit(0.9)]),
        20 => on("to_float", vec![lit("f16")]),
        21 => on("to_float", vec![]),
        22 => on("normalize", vec![lit(0.4), lit(0.3)]),
        _ => on("resize", vec![lit(13), lit(13), lit("nearest")]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Fusing any chain changes neither the field nor the bytes of the result.
    #[test]
    fn fusing_changes_no_byte(kinds in proptest::collection::vec(0_u8..24, 0..7), planes: bool) {
        let batch = pictures();
        let mut expr = decoded();
        for (i, kind) in kinds.iter().enumerate() {
            expr = wrap(*kind, i as u64, expr);
        }
        if planes {
            expr = call("to_chw", vec![expr]);
        }
        let fused = fuse(expr.clone()).unwrap();
        prop_assert_eq!(fused.transformed, planes || !kinds.is_empty());
        match (evaluate(expr, &batch), evaluate(fused.data, &batch)) {
            (Ok((expected, field)), Ok((found, fused_field))) => {
                prop_assert_eq!(field, fused_field);
                prop_assert_eq!(&expected, &found);
            }
            (Err(expected), Err(found)) => {
                prop_assert_eq!(expected.strip_backtrace(), found.strip_backtrace());
            }
            (alone, fused) => prop_assert!(false, "{:?} but fused {:?}", alone.is_ok(), fused.is_ok()),
        }
    }
}

/// The memory of large columns is recycled. A row without an image must not contain samples of an
/// earlier batch.
#[test]
fn the_place_of_an_image_that_is_not_there_is_zero() {
    let large = || {
        call(
            "to_float",
            vec![call("resize", vec![decoded(), lit(400), lit(400)])],
        )
    };
    let file = || Some(encoded(picture(40, 40), ImageFormat::Png));
    let full = batch(&[file(), file()]);
    drop(evaluate(large(), &full).unwrap());
    let (found, _) = evaluate(large(), &batch(&[file(), None])).unwrap();
    let values = found
        .as_fixed_size_list()
        .values()
        .as_primitive::<Float32Type>()
        .values();
    let (first, second) = values.split_at(400 * 400 * 3);
    assert!(found.is_null(1) && first.iter().any(|&v| v > 0.0));
    assert!(second.iter().all(|&v| v == 0.0));
}
