mod hostile;
mod stores;

use std::fs::{self, File};
use std::path::Path;

use arrow::array::{
    ArrayRef, AsArray, BinaryArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray,
    UInt32Array, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, IsNullExpr, col, lit};
use forebay_planner::source::Format;
use futures::StreamExt;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::*;
use crate::source::Source;
use crate::source::testing::{open, read_all, shared_data};

/// Returns 1000 rows: `id` ascends from `first`, `x` is a float that is sometimes NaN, `s` is a
/// string that is null in every fifth row.
fn table(first: i64) -> RecordBatch {
    let ids: Vec<i64> = (first..first + 1000).collect();
    let x = ids
        .iter()
        .map(|&i| if i % 10 == 0 { f64::NAN } else { i as f64 });
    let s: Vec<_> = ids
        .iter()
        .map(|&i| (i % 5 != 0).then(|| format!("name {i}")))
        .collect();
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int64Array::from(ids.clone()))),
        ("x", Arc::new(Float64Array::from_iter_values(x))),
        ("s", Arc::new(StringArray::from(s))),
    ];
    RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    )
    .unwrap()
}

fn write(path: &Path, batch: &RecordBatch) {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(300))
        .set_data_page_row_count_limit(50)
        .set_write_batch_size(50)
        .set_bloom_filter_enabled(true)
        .build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn two_files() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("a.parquet"), &table(0));
    write(&dir.path().join("b.parquet"), &table(1000));
    dir
}

#[tokio::test]
async fn splits_are_row_groups_and_rows_keep_their_numbers() {
    let dir = two_files();
    let source = open(Format::Parquet, dir.path(), &[]).await.unwrap();
    let rows: Vec<_> = source.manifest().files[1]
        .splits
        .iter()
        .map(|s| (s.first_row, s.rows))
        .collect();
    assert_eq!(rows, [(0, 300), (300, 300), (600, 300), (900, 100)]);
    assert_eq!(source.manifest().files[1].path, "b.parquet");
    let (keys, batch) = read_all(&source, &[0, 1, 2], None).await.unwrap();
    assert_eq!(keys[1234], (1, 234));
    let all = arrow::compute::concat_batches(&table(0).schema(), &[table(0), table(1000)]).unwrap();
    assert_eq!(
        format!("{:?}", batch.columns()),
        format!("{:?}", all.columns())
    );
    let (_, projected) = read_all(&source, &[2], None).await.unwrap();
    assert_eq!(projected.column(0), all.column(2));
    let (keys, nothing) = read_all(&source, &[], None).await.unwrap();
    assert_eq!((keys.len(), nothing.num_rows()), (2000, 2000));
}

fn compare(
    column: &str,
    op: Operator,
    value: ScalarValue,
    schema: &SchemaRef,
) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(
        col(column, schema).unwrap(),
        op,
        lit(value),
    ))
}

#[tokio::test]
async fn pruning_drops_only_rows_that_cannot_match() {
    let dir = two_files();
    let source = open(Format::Parquet, dir.path(), &[]).await.unwrap();
    let schema = source.schema();
    let id = |op, n: i64| compare("id", op, ScalarValue::from(n), schema);
    let and = |a, b| -> Arc<dyn PhysicalExpr> { Arc::new(BinaryExpr::new(a, Operator::And, b)) };
    let null: Arc<dyn PhysicalExpr> = Arc::new(IsNullExpr::new(col("s", schema).unwrap()));
    let cases = [
        // Each case: (predicate, maximum number of rows that are read).
        (id(Operator::Lt, 120), 150),
        (id(Operator::Eq, 1234), 50),
        (and(id(Operator::Gt, 640), id(Operator::LtEq, 660)), 100),
        (id(Operator::Gt, 5000), 0),
        (compare("s", Operator::Eq, "name 77".into(), schema), 300),
        (compare("s", Operator::Eq, "name 77x".into(), schema), 0),
        // NaN compares above 1e9, but the statistics leave out NaN, so nothing is pruned.
        (
            compare("x", Operator::Gt, ScalarValue::from(1e9), schema),
            2000,
        ),
        (null, 2000),
    ];
    let (keys, all) = read_all(&source, &[0, 1, 2], None).await.unwrap();
    for (predicate, at_most) in cases {
        let matching = |batch: &RecordBatch| -> Vec<u32> {
            let mask = predicate
                .evaluate(batch)
                .unwrap()
                .into_array(batch.num_rows())
                .unwrap();
            let mask = mask.as_boolean().clone();
            (0u32..)
                .zip(mask.iter())
                .filter(|(_, m)| *m == Some(true))
                .map(|(i, _)| i)
                .collect()
        };
        let (pruned_keys, pruned) = read_all(&source, &[0, 1, 2], Some(Arc::clone(&predicate)))
            .await
            .unwrap();
        assert!(
            pruned_keys.len() <= at_most,
            "{predicate}: {} rows",
            pruned_keys.len()
        );
        let pick = |keys: &[(usize, u64)], batch: &RecordBatch| {
            let rows = matching(batch);
            let keys: Vec<_> = rows.iter().map(|&r| keys[r as usize]).collect();
            (
                keys,
                format!(
                    "{:?}",
                    take_record_batch(batch, &UInt32Array::from(rows)).unwrap()
                ),
            )
        };
        assert_eq!(
            pick(&pruned_keys, &pruned),
            pick(&keys, &all),
            "{predicate}"
        );
    }
}

#[tokio::test]
async fn batches_of_wide_rows_are_small() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wide.parquet");
    let rows: Vec<Vec<u8>> = (0..400).map(|i| vec![i as u8; 100_000]).collect();
    let column: ArrayRef = Arc::new(BinaryArray::from_iter_values(&rows));
    let batch = RecordBatch::try_from_iter([("b", column)]).unwrap();
    let mut writer =
        ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let source = open(Format::Parquet, &path, &[]).await.unwrap();
    let scan = Scan {
        projection: vec![0],
        prune: None,
        keep: None,
    };
    let mut stream = source.read_split(0, 0, &scan);
    let mut count = 0;
    while let Some(rows) = stream.next().await {
        let rows = rows.unwrap();
        assert!(
            rows.batch.num_rows() <= 42,
            "{} rows in a batch",
            rows.batch.num_rows()
        );
        count += rows.batch.num_rows();
    }
    assert_eq!(count, 400);
}

#[tokio::test]
async fn files_of_other_columns_are_refused() {
    let dir = two_files();
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let other = RecordBatch::try_from_iter([("id", Arc::clone(&column)), ("x", column)]).unwrap();
    write(&dir.path().join("c.parquet"), &other);
    let error = open(Format::Parquet, dir.path(), &[]).await.unwrap_err();
    assert!(
        error.contains(
            "column 'x' is Float64 and Int64 ('a.parquet' was read first, then 'c.parquet')"
        ),
        "{error}"
    );
    let error = open(Format::Parquet, dir.path(), &[("page", "1")])
        .await
        .unwrap_err();
    assert!(
        error.contains("PARQUET has no option 'page' (it has none)"),
        "{error}"
    );
}

#[tokio::test]
async fn damaged_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    write(&path, &table(0));
    let sound = fs::read(&path).unwrap();

    fs::write(&path, &sound[..sound.len() / 2]).unwrap();
    let error = open(Format::Parquet, &path, &[]).await.unwrap_err();
    assert!(
        error.contains("t.parquet' is not a sound PARQUET file"),
        "{error}"
    );
    fs::write(&path, "a,b\n1,2\n").unwrap();
    assert!(open(Format::Parquet, &path, &[]).await.is_err());
    fs::write(&path, "").unwrap();
    assert!(open(Format::Parquet, &path, &[]).await.is_err());

    let mut damaged = sound.clone();
    damaged[100..4000].fill(0xff);
    fs::write(&path, &damaged).unwrap();
    // The footer of the damaged file is sound, so the file can be opened.
    let source = open(Format::Parquet, &path, &[]).await.unwrap();
    let error = read_all(&source, &[0, 1, 2], None).await.unwrap_err();
    assert!(
        error.contains("t.parquet' is not a sound PARQUET file"),
        "{error}"
    );
    fs::write(&path, &sound[1..]).unwrap();
    let error = read_all(&source, &[0], None).await.unwrap_err();
    assert!(
        error.contains("changed since the source was opened"),
        "{error}"
    );
}

/// Changes every seventh byte of a small file in turn. Opening and reading the file may fail, but
/// must not panic.
#[tokio::test]
async fn any_wrong_byte_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    write(&path, &table(0).slice(0, 8));
    let sound = fs::read(&path).unwrap();
    for at in (0..sound.len()).step_by(7) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x55;
        fs::write(&path, bytes).unwrap();
        if let Ok(source) = open(Format::Parquet, &path, &[]).await {
            let columns: Vec<_> = (0..source.schema().fields().len()).collect();
            drop(read_all(&source, &columns, None).await);
        }
    }
}

async fn count_rows(source: &Arc<dyn Source>) -> Result<usize, String> {
    let projection = (0..source.schema().fields().len()).collect();
    let scan = Scan {
        projection,
        prune: None,
        keep: None,
    };
    let mut rows = 0;
    for split in 0..source.manifest().files[0].splits.len() {
        let mut stream = source.read_split(0, split, &scan);
        while let Some(read) = stream.next().await {
            rows += read.map_err(|e| e.to_string())?.numbers.len();
        }
    }
    Ok(rows)
}

#[tokio::test]
async fn shared_parquet_files_give_rows_or_errors() {
    for folder in [
        "formats/parquet_testing/data",
        "formats/parquet_testing/bad_data",
    ] {
        let Some(folder) = shared_data(folder) else {
            continue;
        };
        let mut files: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        files.sort();
        let mut sound = 0;
        for path in files
            .iter()
            .filter(|p| p.extension().is_some_and(|e| e == "parquet"))
        {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with("large_string_map") {
                continue; // Values of 2 GiB: too much memory for a test.
            }
            let outcome = match open(Format::Parquet, path, &[]).await {
                Err(error) => Err(error),
                Ok(source) => count_rows(&source).await,
            };
            match outcome {
                Ok(rows) => {
                    sound += 1;
                    println!("{name}: {rows} rows");
                }
                Err(error) => {
                    assert!(
                        error.contains(&name) || error.contains("columns"),
                        "{name}: {error}"
                    );
                    println!("{name}: {error}");
                }
            }
        }
        println!("{}: {sound} of {} read", folder.display(), files.len());
    }
}
