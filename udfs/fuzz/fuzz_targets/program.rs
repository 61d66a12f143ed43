//! Runs chains of image functions over any bytes: no panic, and a fused program has the result, or
//! the error, of its functions one after the other, without seek indexes and with cold and warm ones.
//!
//! The versions of the workspace's dependencies are those that are fuzzed, and the first inputs are
//! generated:
//!
//! ```sh
//! cargo run -p forebay-jpeg --features oracle --example fuzz_corpus
//! cp Cargo.lock udfs/fuzz/ && cd udfs && cargo fuzz run -D -s none program -- -max_len=20000
//! ```

#![no_main]

use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, UInt32Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, ScalarUDF, col, lit};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use forebay_jpeg::JpegHeader;
use forebay_udfs::decode_scope::DecodeScope;
use forebay_udfs::room::DecodeRoom;
use forebay_udfs::row::{RowColumn, row_field};
use forebay_udfs::seek_index_store::{SeekIndexAccess, SeekIndexStore};
use forebay_udfs::{bind_stream, functions, fuse, is_random};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

/// Largest image that is decoded here: the fuzzer looks for faults, not for long runs.
const MAX_PIXELS: usize = 1 << 15;
/// Number of functions after `decode_image`.
const MAX_STEPS: usize = 5;
/// Memory for decoding, in bytes.
const MEMORY: u64 = 1 << 28;

/// A function, and numbers that its constants are made of.
#[derive(Arbitrary, Debug)]
struct Step {
    function: u8,
    a: u8,
    b: u8,
    c: u8,
}

fuzz_target!(|input: (u64, u8, Vec<Step>, &[u8])| {
    let (hash, decoding, steps, file) = input;
    match JpegHeader::read(file) {
        Ok(header) if header.width() * header.height() <= MAX_PIXELS => {}
        _ => return,
    }
    let decoded = match decoding % 4 {
        0 | 1 => call("decode_image", 0, vec![col("image")]),
        2 => call("decode_image", 0, vec![col("image"), lit("luma")]),
        _ => call(
            "decode_image",
            0,
            vec![col("image"), lit("rgb"), lit("strict")],
        ),
    };
    let batch = batch(file, hash);
    let mut chain = decoded;
    for (stream, step) in steps.iter().take(MAX_STEPS).enumerate() {
        let longer = step.on(chain.clone(), stream as u64);
        // Some functions do not take what others return, which planning says.
        if plan(&longer, &batch).is_ok() {
            chain = longer;
        }
    }
    let Ok(fused) = fuse(chain.clone()) else {
        panic!("{chain} cannot be fused");
    };
    let expected = evaluate(None, &chain, &batch);
    let store = Arc::new(SeekIndexStore::default());
    let indexes = SeekIndexAccess::new(store, MEMORY, true);
    for indexes in [None, Some(indexes.clone()), Some(indexes)] {
        let found = evaluate(indexes, &fused.data, &batch);
        // A program requests memory for all its functions, and is refused before it decodes. A function
        // that is called alone requests memory for decoding only.
        if !is_refused(&found) {
            assert_eq!(found, expected);
        }
    }
});

impl Step {
    /// Returns a call of the function on `image`.
    fn on(&self, image: Expr, stream: u64) -> Expr {
        let side = |n: u8| lit(i64::from(n % 96) + 1);
        let small = |n: u8| lit(i64::from(n % 24));
        let part = |n: u8| f64::from(n) / 255.0;
        let filter = |n: u8| lit(["nearest", "bilinear", "bicubic", "lanczos"][usize::from(n % 4)]);
        let sampling = |n: u8| lit(["nearest", "bilinear"][usize::from(n % 2)]);
        let Self { function, a, b, c } = *self;
        let (name, constants) = match function % 26 {
            0 => ("resize", vec![side(a), side(b), filter(c)]),
            1 => ("resize_shortest", vec![side(a), filter(c)]),
            2 => ("center_crop", vec![side(a), side(b)]),
            3 => ("crop", vec![small(a), small(b), side(c), side(a ^ b)]),
            4 => (
                "pad",
                vec![
                    small(a),
                    lit(i64::from(b)),
                    lit(["constant", "edge", "reflect", "symmetric"][usize::from(c % 4)]),
                ],
            ),
            5 => ("random_crop", vec![side(a), side(b), small(c)]),
            6 => ("random_resized_crop", vec![side(a), side(b)]),
            7 => (
                "random_resized_crop",
                vec![side(a), side(b), lit(part(c) / 2.0 + 0.01), lit(1.0)],
            ),
            8 => ("hflip", vec![]),
            9 => ("vflip", vec![]),
            10 => ("random_hflip", vec![lit(part(a))]),
            11 => ("random_vflip", vec![lit(part(a))]),
            12 => (
                "rotate",
                vec![lit(f64::from(a) * 1.5), sampling(b), lit(c % 2 == 0)],
            ),
            13 => ("random_rotate", vec![lit(f64::from(a)), sampling(b)]),
            14 => ("random_affine", vec![lit(f64::from(a) / 2.0)]),
            15 => (
                "random_perspective",
                vec![lit(part(a)), lit(part(b)), sampling(c)],
            ),
            16 => ("gaussian_blur", vec![lit(i64::from(a % 16) * 2 + 1)]),
            17 => ("random_erasing", vec![lit(part(a))]),
            18 => (
                "color_jitter",
                vec![
                    lit(part(a)),
                    lit(part(b)),
                    lit(part(c)),
                    lit(part(a ^ b) / 2.0),
                ],
            ),
            19 => ("grayscale", vec![lit(if a % 2 == 0 { 1_i64 } else { 3 })]),
            20 => ("random_grayscale", vec![lit(part(a))]),
            21 => ("solarize", vec![lit(i64::from(a))]),
            22 => ("posterize", vec![lit(i64::from(a % 8) + 1)]),
            23 => ("to_float", vec![lit(["f32", "f16"][usize::from(a % 2)])]),
            24 => (
                "normalize",
                vec![
                    numbers([part(a), part(b), part(c)]),
                    numbers([0.229, 0.224, 0.225]),
                ],
            ),
            _ => ("to_chw", vec![]),
        };
        call(
            name,
            stream,
            std::iter::once(image).chain(constants).collect(),
        )
    }
}

fn numbers(values: [f64; 3]) -> Expr {
    let values = values.map(ScalarValue::from);
    let values = ScalarValue::new_list_nullable(&values, &DataType::Float64);
    lit(ScalarValue::List(values))
}

/// Calls a function of Forebay; a random one takes the draws of `stream`.
fn call(name: &str, stream: u64, args: Vec<Expr>) -> Expr {
    static FUNCTIONS: OnceLock<Vec<Arc<ScalarUDF>>> = OnceLock::new();
    let known = FUNCTIONS.get_or_init(functions);
    let found = known.iter().find(|function| function.name() == name);
    let func = Arc::clone(found.unwrap_or_else(|| panic!("no function {name}")));
    let call = ScalarFunction { func, args };
    if is_random(name) {
        bind_stream(call, stream).unwrap_or_else(|why| panic!("{name}: {why}"))
    } else {
        Expr::ScalarFunction(call)
    }
}

/// A batch of one file, with the hidden row column.
fn batch(file: &[u8], hash: u64) -> RecordBatch {
    let rows = RowColumn {
        position: UInt64Array::from(vec![0]),
        file: UInt32Array::from(vec![0]),
        row: UInt64Array::from(vec![0]),
        child: UInt32Array::from(vec![0]),
        hash: UInt64Array::from(vec![hash]),
        pass: UInt64Array::from(vec![1]),
    };
    let image = Arc::new(Field::new("image", DataType::Binary, true));
    let schema = Arc::new(Schema::new(vec![image, row_field()]));
    let images: ArrayRef = Arc::new(BinaryArray::from_iter_values([file]));
    let rows = rows.to_array().expect("a row column");
    RecordBatch::try_new(schema, vec![images, rows]).expect("a batch")
}

/// Plans an expression over the columns of `batch`.
fn plan(expr: &Expr, batch: &RecordBatch) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    let schema = DFSchema::try_from(batch.schema())?;
    let planned = create_physical_expr(
        expr,
        &schema,
        &ExecutionProps::new(),
        &PhysicalPlanningContext::default(),
    )?;
    planned.return_field(&batch.schema())?;
    Ok(planned)
}

/// True if an evaluation ended because its images take more memory than the limit.
fn is_refused(evaluated: &Result<ArrayRef, String>) -> bool {
    let is_limit = |why: &String| why.contains("the memory limit of ");
    evaluated.as_ref().is_err_and(is_limit)
}

/// Evaluates an expression with the seek indexes `indexes`; an error is returned as its text.
fn evaluate(
    indexes: Option<SeekIndexAccess>,
    expr: &Expr,
    batch: &RecordBatch,
) -> Result<ArrayRef, String> {
    let planned = plan(expr, batch).expect("a chain that was planned, or is fused from one");
    let scope = DecodeScope {
        room: Arc::new(DecodeRoom::new(MEMORY, true)),
        indexes,
    };
    let values = scope.within(|| planned.evaluate(batch)?.into_array(1));
    values.map_err(|why| why.strip_backtrace())
}
