//! How many photos a second does the training chain make (`R4`: decode, random resized crop 224,
//! random flip, normalise to f32)?
//!
//! ```text
//! cargo run --release -p forebay-udfs --example bench_r4 -- FOLDER [--threads 1] [--files 300]
//!     [--repeat 5] [--chw] [--profile]
//! ```
//!
//! Photos are read into memory first. Prints the median of the repeats, one JSON line.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, UInt32Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::DFSchema;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, col, lit};
use datafusion::prelude::SessionContext;
use forebay_udfs::draw::pass_key;
use forebay_udfs::hash::mix64;
use forebay_udfs::row::{Rows, row_field};
use forebay_udfs::{bind_stream, functions, fuse, is_random};

type AnyError = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: usize| -> usize {
        let place = arguments.iter().position(|a| a == name);
        place
            .and_then(|i| arguments.get(i + 1)?.parse().ok())
            .unwrap_or(default)
    };
    let folder = arguments.first().ok_or("which folder?")?;
    let files = photos(Path::new(folder), option("--files", 300))?;
    let chw = arguments.iter().any(|a| a == "--chw");
    let threads = option("--threads", 1);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()?;

    let crop = call(
        "random_resized_crop",
        0,
        vec![decoded()?, lit(224), lit(224)],
    )?;
    let flip = call("random_hflip", 1, vec![crop])?;
    let mut chain = call("normalize", 2, vec![flip, lit("imagenet")])?;
    if chw {
        chain = call("to_chw", 3, vec![chain])?;
    }
    let mut out = std::io::stdout().lock();
    if arguments.iter().any(|a| a == "--profile") {
        let crop = call(
            "random_resized_crop",
            0,
            vec![decoded()?, lit(224), lit(224)],
        )?;
        for (name, expr) in [
            ("header", call("image_width", 0, vec![col("image")])?),
            ("decode", decoded()?),
            ("decode, crop", crop),
        ] {
            let rate = pool.install(|| rate(&expr, &files, option("--repeat", 5)))?;
            writeln!(out, "{name}: {rate:.0} photos/s")?;
        }
    }
    let rate = pool.install(|| rate(&chain, &files, option("--repeat", 5)))?;
    let n = files.len();
    writeln!(
        out,
        r#"{{"photos": {n}, "threads": {threads}, "photos_per_second": {rate:.1}}}"#
    )?;
    Ok(())
}

fn decoded() -> Result<Expr, AnyError> {
    call("decode_image", 0, vec![col("image")])
}

fn call(name: &str, ordinal: u64, args: Vec<Expr>) -> Result<Expr, AnyError> {
    let func = functions()
        .into_iter()
        .find(|f| f.name() == name)
        .ok_or("no such function")?;
    let call = ScalarFunction { func, args };
    Ok(if is_random(name) {
        bind_stream(call, ordinal)?
    } else {
        Expr::ScalarFunction(call)
    })
}

fn photos(folder: &Path, most: usize) -> Result<Vec<Vec<u8>>, AnyError> {
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|e| e.eq_ignore_ascii_case("jpg") || e.eq_ignore_ascii_case("jpeg"))
            {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths.truncate(most);
    Ok(paths.iter().map(std::fs::read).collect::<Result<_, _>>()?)
}

/// Median photos a second over the repeats, in batches of 32, each repeat another epoch.
fn rate(expr: &Expr, files: &[Vec<u8>], repeat: usize) -> Result<f64, AnyError> {
    let mut rates = Vec::new();
    for epoch in 0..=repeat as u64 {
        let mut seconds = 0.0;
        for (i, files) in files.chunks(32).enumerate() {
            let batch = batch(files, epoch, i as u64 * 32)?;
            let schema = DFSchema::try_from(batch.schema())?;
            let fused = fuse(expr.clone())?.data;
            let physical = SessionContext::new().create_physical_expr(fused, &schema)?;
            let begin = Instant::now();
            let value = physical.evaluate(&batch)?;
            seconds += begin.elapsed().as_secs_f64();
            drop(value);
        }
        // The first pass warms up.
        if epoch > 0 {
            rates.push(files.len() as f64 / seconds);
        }
    }
    rates.sort_by(f64::total_cmp);
    rates
        .get(rates.len() / 2)
        .copied()
        .ok_or_else(|| "no repeats".into())
}

fn batch(files: &[Vec<u8>], epoch: u64, first: u64) -> Result<RecordBatch, AnyError> {
    let n = files.len();
    let rows = Rows {
        position: UInt64Array::from_iter_values(first..first + n as u64),
        file: UInt32Array::from(vec![0; n]),
        row: UInt64Array::from_iter_values(first..first + n as u64),
        child: UInt32Array::from(vec![0; n]),
        hash: UInt64Array::from_iter_values((first..first + n as u64).map(mix64)),
        pass: UInt64Array::from(vec![pass_key(0, epoch); n]),
    };
    let images: BinaryArray = files.iter().map(|f| Some(f.as_slice())).collect();
    let fields = vec![
        Arc::new(Field::new("image", DataType::Binary, true)),
        row_field(),
    ];
    let columns: Vec<ArrayRef> = vec![Arc::new(images), rows.to_array()?];
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}
