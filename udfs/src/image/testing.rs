//! Helpers for tests of image functions: small images, hidden rows, evaluation through DataFusion.

use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Int32Array, RecordBatch, UInt32Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, col, lit};
use datafusion::prelude::SessionContext;
use image::{DynamicImage, ImageFormat, RgbImage};

use super::fuse::{fuse, op_of};
use super::kernel::geometry::Region;
use super::op::ImageOp;
use super::pixels::{PixelShape, Pixels};
use super::values::{Interpolation, Range, Real};
use crate::bind::bind_stream;
use crate::catalogue::is_random;
use crate::draw::{Draws, pass_key};
use crate::functions::functions;
use crate::hash::mix64;
use crate::row::{RowColumn, row_field};

/// An image of smooth gradients with some noise.
pub(crate) fn picture(width: u32, height: u32) -> RgbImage {
    let mut draws = Draws::new(1, 2, u64::from(width), height);
    RgbImage::from_fn(width, height, |x, y| {
        let noise = draws.below(16) as u32;
        let at = |v: u32, n: u32| (v * 239 / n.max(1) + noise) as u8;
        image::Rgb([at(x, width), at(y, height), at(x + y, width + height)])
    })
}

/// Encodes an image.
pub(crate) fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    image.into().write_to(&mut file, format).unwrap();
    file.into_inner()
}

/// A batch with columns `image` (Binary), `label` (Int32) and the hidden row column.
pub(crate) fn batch(images: &[Option<Vec<u8>>]) -> RecordBatch {
    let n = images.len();
    let column: BinaryArray = images.iter().map(Option::as_deref).collect();
    let rows = RowColumn {
        position: UInt64Array::from_iter_values(0..n as u64),
        file: UInt32Array::from_iter_values(0..n as u32),
        row: UInt64Array::from_iter_values(0..n as u64),
        child: UInt32Array::from_iter_values((0..n).map(|_| 0)),
        hash: UInt64Array::from_iter_values((0..n as u64).map(mix64)),
        pass: UInt64Array::from_iter_values((0..n).map(|_| pass_key(42, 0))),
    };
    let fields = vec![
        Arc::new(Field::new("image", DataType::Binary, true)),
        Arc::new(Field::new("label", DataType::Int32, true)),
        row_field(),
    ];
    let labels = Int32Array::from_iter_values(0..n as i32);
    let columns: Vec<ArrayRef> = vec![Arc::new(column), Arc::new(labels), rows.to_array().unwrap()];
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// Calls a function of this crate; a random function is bound to stream `ordinal`.
pub(crate) fn call_on(name: &str, ordinal: u64, args: Vec<Expr>) -> Expr {
    let func = functions().into_iter().find(|f| f.name() == name).unwrap();
    let call = datafusion::logical_expr::expr::ScalarFunction { func, args };
    if is_random(name) {
        bind_stream(call, ordinal).unwrap()
    } else {
        Expr::ScalarFunction(call)
    }
}

/// Calls a function of this crate; a random function is bound to stream 0.
pub(crate) fn call(name: &str, args: Vec<Expr>) -> Expr {
    call_on(name, 0, args)
}

/// Returns `decode_image(image)`.
pub(crate) fn decoded() -> Expr {
    call("decode_image", vec![col("image")])
}

/// A literal list of floats.
pub(crate) fn list(values: &[f64]) -> Expr {
    let values: Vec<_> = values.iter().map(|&v| v.into()).collect();
    let list = datafusion::common::ScalarValue::new_list_nullable(&values, &DataType::Float64);
    lit(datafusion::common::ScalarValue::List(list))
}

/// Plans and evaluates an expression as a projection would. Returns the values and their field.
pub(crate) fn evaluate(expr: Expr, batch: &RecordBatch) -> Result<(ArrayRef, Arc<Field>)> {
    let schema = DFSchema::try_from(batch.schema())?;
    let physical = SessionContext::new().create_physical_expr(expr, &schema)?;
    let field = physical.return_field(&batch.schema())?;
    let value = physical.evaluate(batch)?.into_array(batch.num_rows())?;
    assert_eq!(value.data_type(), field.data_type());
    Ok((value, field))
}

/// Returns the error of planning or evaluating an expression that must fail.
pub(crate) fn failure(expr: Expr, batch: &RecordBatch) -> String {
    evaluate(expr, batch).unwrap_err().strip_backtrace()
}

/// Returns a batch of encoded images of several shapes. One row has no image.
pub(crate) fn pictures() -> RecordBatch {
    let sizes = [(64, 48), (33, 57), (50, 50), (120, 40)];
    let mut files: Vec<_> = sizes
        .iter()
        .map(|&(w, h)| Some(encoded(picture(w, h), ImageFormat::Png)))
        .collect();
    files.insert(2, None);
    batch(&files)
}

/// An image of noise.
pub(crate) fn image_of(height: usize, width: usize, channels: usize) -> Pixels {
    let mut pixels = Pixels::default();
    pixels.reshape(PixelShape {
        height,
        width,
        channels,
        ..pixels.shape
    });
    let mut draws = Draws::new(5, 6, 7, 8);
    pixels.u8s.fill_with(|| draws.next_u32() as u8);
    pixels
}

/// Returns the samples that `source` has at one position per pixel, computed directly from the
/// definition of the filter, in double precision. A sample is `None` if the filter is `Nearest` and
/// the position is midway between two pixels.
pub(crate) fn sampled(
    source: &Pixels,
    filter: Interpolation,
    fill: &[f64],
    place: impl Fn(f64, f64) -> (f64, f64),
) -> Vec<Option<f64>> {
    let PixelShape {
        width, channels, ..
    } = source.shape;
    let mut samples = Vec::new();
    for i in 0..source.shape.len() {
        let (pixel, c) = (i / channels, i % channels);
        let (x, y) = place((pixel % width) as f64, (pixel / width) as f64);
        let is_midway = |v: f64| (v - v.floor() - 0.5).abs() < 1e-6;
        let (mut sum, mut covered) = (0.0, 0.0);
        for (j, value) in source.u8s.iter().enumerate().skip(c).step_by(channels) {
            let (column, row) = ((j / channels % width) as f64, (j / channels / width) as f64);
            let (far_x, far_y) = ((x - column).abs(), (y - row).abs());
            let weight = if filter == Interpolation::Nearest {
                f64::from(u8::from(far_x < 0.5 && far_y < 0.5))
            } else {
                (1.0 - far_x).max(0.0) * (1.0 - far_y).max(0.0)
            };
            sum += weight * f64::from(*value);
            covered += weight;
        }
        let sample = (sum - fill[c]) * covered + fill[c];
        let is_sure = filter != Interpolation::Nearest || !(is_midway(x) || is_midway(y));
        samples.push(is_sure.then_some(sample));
    }
    samples
}

/// Asserts that the bytes of `found` equal the rounded samples of `expected`. Any byte is accepted
/// for a sample that is `None`.
pub(crate) fn assert_sampled(found: &Pixels, expected: &[Option<f64>]) {
    assert_eq!(found.u8s.len(), expected.len());
    let sure = expected.iter().flatten().count();
    assert!(sure * 3 > expected.len() * 2, "{sure} samples are sure");
    for (i, (found, expected)) in found.u8s.iter().zip(expected).enumerate() {
        let far = expected.map_or(0.0, |expected| (f64::from(*found) - expected).abs());
        assert!(far < 0.51, "sample {i}: {found} instead of {expected:?}");
    }
}

/// Asserts that `function` has the same result for byte images and float images when it runs alone,
/// in a fused program, and in a fused program row by row.
pub(crate) fn assert_fused_and_row_by_row(function: &str, constants: Vec<Expr>) {
    let batch = pictures();
    let on = |image: Expr| {
        let args = std::iter::once(image).chain(constants.clone()).collect();
        call_on(function, 3, args)
    };
    let sized = || call("resize", vec![decoded(), lit(20), lit(30)]);
    for expr in [
        on(decoded()),
        on(call("to_float", vec![sized()])),
        call(
            "to_chw",
            vec![call_on("random_hflip", 1, vec![on(sized())])],
        ),
    ] {
        let fused = fuse(expr.clone()).unwrap();
        assert!(fused.transformed);
        let (expected, field) = evaluate(expr, &batch).unwrap();
        let (found, fused_field) = evaluate(fused.data.clone(), &batch).unwrap();
        assert_eq!(field, fused_field);
        assert_eq!(&expected, &found);
        for row in 0..batch.num_rows() {
            let (found, _) = evaluate(fused.data.clone(), &batch.slice(row, 1)).unwrap();
            assert_eq!(&expected.slice(row, 1), &found, "row {row}");
        }
    }
}

/// Returns the function of a call with its constants.
pub(crate) fn op(call: &Expr) -> Arc<dyn ImageOp> {
    match call {
        Expr::ScalarFunction(call) => op_of(call).unwrap(),
        other => panic!("{other} is no call"),
    }
}

/// Height and width of the images for which `benches/torchvision_golden.py` draws parameters.
pub(crate) const SIZE: (usize, usize) = (120, 90);

/// Number of rows for which `benches/torchvision_golden.py` draws parameters.
pub(crate) const ROWS: u64 = 3000;

/// Returns the draws of one stream for each of [`ROWS`] rows.
pub(crate) fn draws() -> impl Iterator<Item = Draws> {
    (0..ROWS).map(|row| Draws::new(7, 3, mix64(row), 0))
}

/// Returns the closed interval from `low` to `high`.
pub(crate) fn interval(low: f64, high: f64) -> Range {
    (Real(low), Real(high))
}

/// Returns four columns: the top, left, height and width of each rectangle.
pub(crate) fn columns(regions: impl Iterator<Item = Region>) -> Vec<Vec<f64>> {
    let mut columns = vec![Vec::new(); 4];
    for Region {
        top,
        left,
        height,
        width,
    } in regions
    {
        for (column, value) in columns.iter_mut().zip([top, left, height, width]) {
            column.push(value as f64);
        }
    }
    columns
}

/// Asserts that each column of parameters has the distribution that torchvision draws from
/// (`benches/torchvision_golden.py`).
pub(crate) fn agree(function: &str, columns: Vec<Vec<f64>>) {
    let text = include_str!("../../tests/golden/parameters.json");
    let all: serde_json::Value = serde_json::from_str(text).unwrap();
    let golden = all[function].as_array().unwrap();
    assert_eq!(golden.len(), columns.len());
    for (i, (expected, found)) in golden.iter().zip(columns).enumerate() {
        let expected = expected.as_array().unwrap();
        let expected = expected.iter().map(|v| v.as_f64().unwrap()).collect();
        let p = kolmogorov_smirnov(expected, found);
        assert!(p > 1e-3, "{function}, parameter {i}: p = {p}");
    }
}

/// Asserts that an event has probability `p`, within four standard deviations of the number of
/// hits.
pub(crate) fn occurs(p: f64, event: impl Fn(&mut Draws) -> bool) {
    let hits = draws().filter_map(|mut draws| event(&mut draws).then_some(()));
    let (hits, rows) = (hits.count() as f64, ROWS as f64);
    let bar = 4.0 * (rows * p * (1.0 - p)).sqrt();
    assert!((hits - rows * p).abs() <= bar, "{p}: {hits}");
}

/// The p value of the Kolmogorov-Smirnov test that two samples have the same distribution
/// (Numerical Recipes, 14.3).
fn kolmogorov_smirnov(mut a: Vec<f64>, mut b: Vec<f64>) -> f64 {
    a.sort_by(f64::total_cmp);
    b.sort_by(f64::total_cmp);
    let (n, m) = (a.len() as f64, b.len() as f64);
    let mut far: f64 = 0.0;
    for x in a.iter().chain(&b) {
        let below = |v: &[f64]| v.partition_point(|y| y <= x) as f64 / v.len() as f64;
        far = far.max((below(&a) - below(&b)).abs());
    }
    let root = (n * m / (n + m)).sqrt();
    let lambda = (root + 0.12 + 0.11 / root) * far;
    let terms = (1..100).map(|k| {
        let k = f64::from(k);
        (if k % 2.0 == 1.0 { 2.0 } else { -2.0 }) * (-2.0 * k * k * lambda * lambda).exp()
    });
    if lambda < 0.2 {
        1.0
    } else {
        terms.sum::<f64>().clamp(0.0, 1.0)
    }
}

#[test]
fn distributions_are_told_apart() {
    let uniform = |n: u64, scale: f64| -> Vec<f64> {
        (0..n)
            .map(|i| Draws::new(n, 0, mix64(i), 0).uniform() * scale)
            .collect()
    };
    assert!(kolmogorov_smirnov(uniform(1000, 1.0), uniform(1500, 1.0)) > 1e-3);
    assert!(kolmogorov_smirnov(uniform(1000, 1.0), uniform(1500, 1.15)) < 1e-3);
}

/// A linear map of homogeneous coordinates, by rows.
pub(crate) type Matrix = [[f64; 3]; 3];

/// Returns the matrix product: the map `a` after the map `b`.
pub(crate) fn product(a: Matrix, b: Matrix) -> Matrix {
    let at = |i: usize, j: usize| (0..3).map(|k| a[i][k] * b[k][j]).sum();
    std::array::from_fn(|i| std::array::from_fn(|j| at(i, j)))
}

/// Returns the inverse of a matrix, by its adjugate.
pub(crate) fn inverse(m: Matrix) -> Matrix {
    let minor = |i: usize, j: usize| {
        let (r, c) = ((i + 1) % 3, (j + 1) % 3);
        let (s, d) = ((i + 2) % 3, (j + 2) % 3);
        m[r][c] * m[s][d] - m[r][d] * m[s][c]
    };
    let determinant: f64 = (0..3).map(|j| m[0][j] * minor(0, j)).sum();
    std::array::from_fn(|i| std::array::from_fn(|j| minor(j, i) / determinant))
}
