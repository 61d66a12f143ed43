//! Compares image functions with arrays that torchvision made (`benches/torchvision_golden.py`).
//!
//! A random function is compared with fixed parameters: each parameter is a range of a single
//! number, so nothing is drawn. The drawing of parameters is tested in the files of the functions.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, RecordBatch, UInt8Array,
    UInt32Array, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Float32Type, Schema, UInt8Type};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, col, lit};
use datafusion::prelude::SessionContext;
use forebay_udfs::row::{RowColumn, row_field};
use forebay_udfs::{Dtype, ImageLayout, TensorType, bind_stream, functions, is_random};
use serde_json::Value;

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/golden")
            .join(name),
    )
    .unwrap()
}

fn argument(value: &Value) -> Expr {
    match value {
        Value::Bool(flag) => lit(*flag),
        Value::String(text) => lit(text.as_str()),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => lit(whole),
            None => lit(number.as_f64().unwrap()),
        },
        Value::Array(values) => {
            let values: Vec<ScalarValue> =
                values.iter().map(|v| v.as_f64().unwrap().into()).collect();
            let list = ScalarValue::new_list_nullable(&values, &DataType::Float64);
            lit(ScalarValue::List(list))
        }
        other => panic!("{other}"),
    }
}

/// Returns a batch of one image, with the hidden row column.
fn batch(shape: (usize, usize), values: ArrayRef) -> RecordBatch {
    let dtype = Dtype::from_arrow(values.data_type()).unwrap();
    let tensor = TensorType {
        dtype,
        channels: 3,
        layout: ImageLayout::Hwc,
        shape: Some(shape),
    };
    let DataType::FixedSizeList(item, n) = tensor.data_type() else {
        panic!()
    };
    let image = FixedSizeListArray::new(item, n, values, None);
    let rows = RowColumn {
        position: UInt64Array::from(vec![0]),
        file: UInt32Array::from(vec![0]),
        row: UInt64Array::from(vec![0]),
        child: UInt32Array::from(vec![0]),
        hash: UInt64Array::from(vec![1]),
        pass: UInt64Array::from(vec![2]),
    };
    let fields = vec![Arc::new(tensor.to_field("image")), row_field()];
    let columns: Vec<ArrayRef> = vec![Arc::new(image), rows.to_array().unwrap()];
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// Evaluates `call` on `batch`. Returns the field and the samples of the result.
fn evaluate(call: &[Value], batch: &RecordBatch) -> (Arc<Field>, Vec<f64>) {
    let name = call[0].as_str().unwrap();
    let func = functions().into_iter().find(|f| f.name() == name).unwrap();
    let args = std::iter::once(col("image"))
        .chain(call[1..].iter().map(argument))
        .collect();
    let call = ScalarFunction { func, args };
    let expr = if is_random(name) {
        bind_stream(call, 0).unwrap()
    } else {
        Expr::ScalarFunction(call)
    };
    let schema = DFSchema::try_from(batch.schema()).unwrap();
    let physical = SessionContext::new()
        .create_physical_expr(expr, &schema)
        .unwrap();
    let field = physical.return_field(&batch.schema()).unwrap();
    let value = physical.evaluate(batch).unwrap().into_array(1).unwrap();
    let values = value.as_fixed_size_list().value(0);
    let values = match values.data_type() {
        DataType::UInt8 => values
            .as_primitive::<UInt8Type>()
            .iter()
            .map(|v| f64::from(v.unwrap()))
            .collect(),
        _ => values
            .as_primitive::<Float32Type>()
            .iter()
            .map(|v| f64::from(v.unwrap()))
            .collect(),
    };
    (field, values)
}

#[test]
fn functions_agree_with_torchvision() {
    let bytes = golden("functions.bin");
    let document: Value = serde_json::from_slice(&golden("functions.json")).unwrap();
    let slice = |entry: &Value| -> (Vec<usize>, Vec<f64>) {
        let shape: Vec<usize> = entry["shape"]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v.as_u64().unwrap() as usize)
            .collect();
        let (start, n) = (
            entry["start"].as_u64().unwrap() as usize,
            shape.iter().product::<usize>(),
        );
        let values = match entry["type"].as_str().unwrap() {
            "uint8" => bytes[start..start + n]
                .iter()
                .map(|&v| f64::from(v))
                .collect(),
            _ => bytes[start..start + 4 * n]
                .chunks_exact(4)
                .map(|c| f64::from(f32::from_le_bytes(c.try_into().unwrap())))
                .collect(),
        };
        (shape, values)
    };
    let (shape, source) = slice(&document["source"]);
    let size = (shape[0], shape[1]);
    let u8s = batch(
        size,
        Arc::new(UInt8Array::from_iter_values(
            source.iter().map(|&v| v as u8),
        )),
    );
    let scaled = source.iter().map(|&v| v as f32 / 255.0);
    let f32s = batch(size, Arc::new(Float32Array::from_iter_values(scaled)));

    let mut wrong = Vec::new();
    let cases = document["cases"].as_array().unwrap();
    for case in cases {
        let call = case["call"].as_array().unwrap();
        let batch = if case["input"] == "u8" { &u8s } else { &f32s };
        let (shape, expected) = slice(case);
        let (field, found) = evaluate(call, batch);
        let tensor = TensorType::from_field(&field).unwrap().unwrap();
        assert_eq!(tensor.shape, Some((shape[0], shape[1])), "{call:?}");
        assert_eq!(tensor.channels, shape[2], "{call:?}");
        let unit = if tensor.dtype == Dtype::U8 {
            1.0
        } else {
            255.0
        };
        let far = expected
            .iter()
            .zip(&found)
            .map(|(a, b)| (a - b).abs() * unit)
            .fold(0.0, f64::max);
        let bar = case["tolerance"].as_f64().unwrap();
        if far > bar || found.len() != expected.len() {
            wrong.push(format!(
                "{call:?} on {}: {far:.4} of 255 above {bar}",
                case["input"]
            ));
        }
    }
    assert!(cases.len() > 80);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
