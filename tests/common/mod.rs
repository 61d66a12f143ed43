//! Shared helpers of the end-to-end tests: they write small data, run pipelines, and return the
//! digests of streams.

#![allow(dead_code, reason = "each test binary uses its own part")]

#[cfg(feature = "cluster")]
pub(crate) mod cluster;
pub(crate) mod parallel;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use forebay::digest::Digest;
use forebay::{Batch, ByName, Error, Run, RunConfig, Session};
use image::{Rgb, RgbImage};

/// Writes `count` small JPEG photos to `dir`, in `classes` folders that name their classes.
pub(crate) fn photos(dir: &Path, count: u32, classes: u32) {
    for i in 0..count {
        let class = dir.join(format!("class{}", i % classes));
        std::fs::create_dir_all(&class).unwrap();
        let (w, h) = (40 + i % 23, 36 + i % 17);
        let pixel = |x: u32, y: u32| {
            Rgb([
                (x * 5 + i * 11) as u8,
                (y * 6 + i * 3) as u8,
                ((x ^ y) * 4 + i) as u8,
            ])
        };
        RgbImage::from_fn(w, h, pixel)
            .save(class.join(format!("{i:04}.jpg")))
            .unwrap();
    }
}

/// Returns a table of `rows` rows with nulls, a list column, and zeros in `d`, by which a division
/// fails.
pub(crate) fn table(rows: i64) -> RecordBatch {
    let id = Int64Array::from_iter_values(0..rows);
    let x =
        Float64Array::from_iter((0..rows).map(|i| (i % 7 != 3).then_some(i as f64 * 0.37 - 20.0)));
    let d = Int64Array::from_iter_values((0..rows).map(|i| i % 13));
    let name =
        StringArray::from_iter((0..rows).map(|i| (i % 5 != 0).then(|| format!("n{}", i % 11))));
    let list =
        |i: i64| (i % 6 != 0).then(|| (0..i % 4).map(|j| Some(i * 10 + j)).collect::<Vec<_>>());
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>((0..rows).map(list));
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(id)),
        ("x", Arc::new(x)),
        ("d", Arc::new(d)),
        ("name", Arc::new(name)),
        ("list", Arc::new(list)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap()
}

/// Writes `batch` to a Parquet file with row groups of at most `group` rows.
pub(crate) fn parquet(path: &Path, batch: &RecordBatch, group: usize) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let props = parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(group))
        .build();
    let file = File::create(path).unwrap();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(file, batch.schema(), Some(props)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// Runs the pipeline `name`, and returns all batches of the run.
pub(crate) async fn batches(
    session: &Session,
    name: &str,
    config: RunConfig,
) -> Result<Vec<Batch>, Error> {
    at_most(session, name, config, usize::MAX).await
}

/// Runs the pipeline `p`, and returns its first `most` batches, or all if it has fewer.
pub(crate) async fn batches_of_p(
    session: &Session,
    config: RunConfig,
    most: usize,
) -> Result<Vec<Batch>, String> {
    let batches = at_most(session, "p", config, most).await;
    batches.map_err(|error| error.to_string())
}

/// Environment variable that has every run find its segments by their names, as workers do.
const BY_NAME: &str = "FOREBAY_TEST_BY_NAME";

/// Starts the pipeline `name` of `session`, in the way that the environment asks for.
pub(crate) async fn started(
    session: &Session,
    name: &str,
    mut config: RunConfig,
) -> Result<Run, Error> {
    if std::env::var_os(BY_NAME).is_some() && config.internals.engine.is_none() {
        config.internals.engine = Some(Arc::new(ByName { at_once: 3 }));
    }
    #[cfg(feature = "cluster")]
    if let Some(cluster) = cluster::of_environment() {
        let there = cluster::moved(session, cluster, name).await?;
        return there.run(name, config).await;
    }
    session.run(name, config).await
}

async fn at_most(
    session: &Session,
    name: &str,
    config: RunConfig,
    most: usize,
) -> Result<Vec<Batch>, Error> {
    let mut run = started(session, name, config).await?;
    let mut batches = Vec::new();
    while batches.len() < most {
        match run.next().await {
            Some(batch) => batches.push(batch?),
            None => break,
        }
    }
    Ok(batches)
}

/// Returns the digest of some batches.
pub(crate) fn digest(batches: &[Batch]) -> String {
    let mut digest = Digest::default();
    batches
        .iter()
        .for_each(|b| digest.update(&b.batch).unwrap());
    digest.finish()
}

/// Runs the pipeline `name`. Returns the digest of its stream, or the message of the error that
/// ended the run.
pub(crate) async fn outcome(
    session: &Session,
    name: &str,
    config: RunConfig,
) -> Result<String, String> {
    batches(session, name, config)
        .await
        .map(|b| digest(&b))
        .map_err(|e| e.to_string())
}

/// Returns the keys of the batches' rows, in stream order: file, row number in the file, and index
/// among the rows that `unnest` created from this row.
pub(crate) fn keys(batches: &[Batch]) -> Vec<(String, u64, u32)> {
    let of = |b: &Batch| {
        b.keys()
            .map(|(f, r, c)| (f.to_owned(), r, c))
            .collect::<Vec<_>>()
    };
    batches.iter().flat_map(of).collect()
}
