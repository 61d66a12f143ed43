//! What tests of image functions share: small images, hidden rows, evaluation through DataFusion.

use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Int32Array, RecordBatch, UInt32Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, col, lit};
use datafusion::prelude::SessionContext;
use image::{DynamicImage, ImageFormat, RgbImage};

use crate::bind::{bind_stream, is_random};
use crate::draw::{Draws, pass_key};
use crate::functions;
use crate::hash::mix64;
use crate::row::{ROW_COLUMN, Rows, row_field};

/// An image of smooth gradients with some noise.
pub(crate) fn picture(width: u32, height: u32) -> RgbImage {
    let mut draws = Draws::new(1, 2, u64::from(width), height);
    RgbImage::from_fn(width, height, |x, y| {
        let noise = draws.below(16) as u32;
        let at = |v: u32, n: u32| (v * 239 / n.max(1) + noise) as u8;
        image::Rgb([at(x, width), at(y, height), at(x + y, width + height)])
    })
}

/// The file of an image.
pub(crate) fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    image.into().write_to(&mut file, format).unwrap();
    file.into_inner()
}

/// A batch with columns `image` (Binary), `label` (Int32) and the hidden row column.
pub(crate) fn batch(images: &[Option<Vec<u8>>]) -> RecordBatch {
    let n = images.len();
    let column: BinaryArray = images.iter().map(Option::as_deref).collect();
    let rows = Rows {
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

/// A call of a function of this crate; random ones are bound to stream `ordinal`.
pub(crate) fn call_on(name: &str, ordinal: u64, args: Vec<Expr>) -> Expr {
    let func = functions().into_iter().find(|f| f.name() == name).unwrap();
    let call = datafusion::logical_expr::expr::ScalarFunction { func, args };
    if is_random(name) {
        bind_stream(call, ordinal).unwrap()
    } else {
        Expr::ScalarFunction(call)
    }
}

/// A call on stream 0.
pub(crate) fn call(name: &str, args: Vec<Expr>) -> Expr {
    call_on(name, 0, args)
}

/// `decode_image(image)`.
pub(crate) fn decoded() -> Expr {
    call("decode_image", vec![col("image")])
}

/// A literal list of floats.
pub(crate) fn list(values: &[f64]) -> Expr {
    let values: Vec<_> = values.iter().map(|&v| v.into()).collect();
    let list = datafusion::common::ScalarValue::new_list_nullable(&values, &DataType::Float64);
    lit(datafusion::common::ScalarValue::List(list))
}

/// Plans and evaluates an expression, as a projection would.
pub(crate) fn evaluate(expr: Expr, batch: &RecordBatch) -> Result<(ArrayRef, Arc<Field>)> {
    let schema = DFSchema::try_from(batch.schema())?;
    let physical = SessionContext::new().create_physical_expr(expr, &schema)?;
    let field = physical.return_field(&batch.schema())?;
    let value = physical.evaluate(batch)?.into_array(batch.num_rows())?;
    assert_eq!(value.data_type(), field.data_type());
    Ok((value, field))
}

/// The message of planning or evaluating an expression that fails.
pub(crate) fn failure(expr: Expr, batch: &RecordBatch) -> String {
    evaluate(expr, batch).unwrap_err().strip_backtrace()
}
