use std::fs;
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

/// 1000 rows of: `id` ascending, `x` a float with NaN, `s` a string, null in each fifth row.
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
        // (predicate, rows that may at most come)
        (id(Operator::Lt, 120), 150),
        (id(Operator::Eq, 1234), 50),
        (and(id(Operator::Gt, 640), id(Operator::LtEq, 660)), 100),
        (id(Operator::Gt, 5000), 0),
        (compare("s", Operator::Eq, "name 77".into(), schema), 300),
        (compare("s", Operator::Eq, "name 77x".into(), schema), 0),
        // NaN is above 1e9 and is not in the statistics.
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
    // Its footer is whole, so it can be opened.
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

/// Every byte of a small file wrong in turn: an error or rows, never a panic and never silence.
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

/// Replaces bytes of a file, which has them once or more, and reads all its columns.
async fn with_bytes(path: &Path, found: &[u8], other: &[u8]) -> Result<usize, String> {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes
        .windows(found.len())
        .position(|bytes| bytes == found)
        .unwrap();
    bytes[at..at + other.len()].copy_from_slice(other);
    let changed = path.with_extension("changed");
    fs::write(&changed, bytes).unwrap();
    let source = open(Format::Parquet, &changed, &[]).await?;
    let columns: Vec<_> = (0..source.schema().fields().len()).collect();
    Ok(read_all(&source, &columns, None).await?.0.len())
}

#[tokio::test]
async fn no_length_of_a_page_is_believed() {
    use parquet::basic::{Compression, Encoding};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let write = |column: ArrayRef, compression, encoding| {
        let batch = RecordBatch::try_from_iter([("c", column)]).unwrap();
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_compression(compression)
            .set_encoding(encoding)
            .set_data_page_size_limit(4 << 20)
            .set_write_batch_size(1 << 20)
            .build();
        let file = File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    };
    // A header begins with the type of the page and its uncompressed bytes, 2,000,000.
    write(
        Arc::new(Int64Array::from(vec![7; 250_000])),
        Compression::SNAPPY,
        Encoding::PLAIN,
    );
    let header = [0x15, 0x00, 0x15, 0x80, 0x92, 0xf4, 0x01];
    assert_eq!(with_bytes(&path, &header, &header).await, Ok(250_000));
    let lie = [0x15, 0x00, 0x15, 0xfe, 0xff, 0xff, 0x7f];
    let error = with_bytes(&path, &header, &lie).await.unwrap_err();
    assert!(
        error.contains("t.changed' is not a sound PARQUET file: row group 0, column '\"c\"'"),
        "{error}"
    );
    assert!(error.contains("it states 134217727 bytes in"), "{error}");

    // Blocks of 128 lengths in four parts, 1000 in all.
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..1000).map(|n| format!("name {n}")),
    ));
    for encoding in [
        Encoding::DELTA_LENGTH_BYTE_ARRAY,
        Encoding::DELTA_BYTE_ARRAY,
    ] {
        write(Arc::clone(&text), Compression::UNCOMPRESSED, encoding);
        let header = [0x80, 0x01, 0x04, 0xe8, 0x07];
        assert_eq!(with_bytes(&path, &header, &header).await, Ok(1000));
        let error = with_bytes(&path, &header, &[0x80, 0x01, 0x04, 0xff, 0x7f])
            .await
            .unwrap_err();
        assert!(
            error.contains("a page of 1000 values states 16383 lengths"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn columns_in_too_many_levels_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    // Version 1, and 100,000 groups within each other.
    let mut footer = vec![0x15, 0x02, 0x19, 0xfc, 0xa0, 0x8d, 0x06];
    for _ in 0..100_000 {
        footer.extend([0x48, 0x01, b'a', 0x15, 0x02, 0x00]);
    }
    footer.push(0);
    let length = (footer.len() as u32).to_le_bytes();
    fs::write(
        &path,
        [b"PAR1", footer.as_slice(), &length, b"PAR1"].concat(),
    )
    .unwrap();
    let error = open(Format::Parquet, &path, &[]).await.unwrap_err();
    assert!(error.contains("nested in more than 64 levels"), "{error}");
}

/// An offset index that is not that of the pages would give rows the numbers of others.
#[tokio::test]
async fn an_offset_index_of_other_pages_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    write(&path, &table(0));
    let sound = fs::read(&path).unwrap();
    let footer = read_footer(&File::open(&path).unwrap()).unwrap();
    let column = footer.row_group(1).column(0);
    let start = column.offset_index_offset().unwrap() as usize;
    let length = column.offset_index_length().unwrap() as usize;
    let ids = col(
        "id",
        &Schema::new(vec![Field::new("id", DataType::Int64, true)]),
    )
    .unwrap();
    let above: Arc<dyn PhysicalExpr> = Arc::new(BinaryExpr::new(ids, Operator::Gt, lit(450i64)));
    for at in start..start + length {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x04;
        fs::write(&path, bytes).unwrap();
        let source = open(Format::Parquet, &path, &[]).await.unwrap();
        let (keys, batch) = read_all(&source, &[0], Some(Arc::clone(&above)))
            .await
            .unwrap();
        let found = batch
            .column(0)
            .as_primitive::<arrow::datatypes::Int64Type>()
            .values();
        assert!(
            keys.iter().zip(found).all(|(key, id)| key.1 as i64 == *id),
            "byte {at}"
        );
        let wanted = found.iter().filter(|&&id| id > 450).count();
        assert_eq!(wanted, 549, "byte {at}");
    }
}

/// Writes lists of null values of 4 KiB, so that files stay small.
fn write_lists(path: &Path, lengths: &[usize]) {
    let values = new_null_array(&DataType::FixedSizeBinary(4096), lengths.iter().sum());
    let item = Arc::new(Field::new("item", values.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
    let lists: ArrayRef = Arc::new(ListArray::new(item, offsets, values, None));
    let batch = RecordBatch::try_from_iter([("l", lists)]).unwrap();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Lists that compress well are read, however many there are; a row of them is not.
#[tokio::test]
async fn rows_of_lists_are_bounded_and_not_their_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let batch_rows = || {
        let file = File::open(&path).unwrap();
        let size = file.metadata().unwrap().len();
        let footer = read_footer(&file).unwrap();
        let group = footer.row_group(0);
        let checked = Pages::check(&file, size, group.column(0), group.num_rows() as u64);
        checked.map(|pages| pages.batch_rows)
    };
    write_lists(&path, &[100; 700]);
    assert!((600..700).contains(&batch_rows().unwrap()));
    let source = open(Format::Parquet, &path, &[]).await.unwrap();
    assert_eq!(count_rows(&source).await, Ok(700));
    // One of many rows is large: a batch has no other.
    let mut lengths = vec![50; 800];
    lengths[700] = 40_000;
    write_lists(&path, &lengths);
    assert_eq!(batch_rows(), Ok(1));
    write_lists(&path, &[3, 70_000, 5]);
    let source = open(Format::Parquet, &path, &[]).await.unwrap();
    let error = count_rows(&source).await.unwrap_err();
    assert!(error.contains("a row has 70000 values"), "{error}");
    assert!(error.contains("t.parquet' is not a sound"), "{error}");
    // Below the bound there is no need to look.
    write_lists(&path, &[3, 700, 5]);
    assert_eq!(batch_rows(), Ok(usize::MAX));
}

#[tokio::test]
async fn page_headers_say_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
    let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .build();
    let file = File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    // A data page of 8000 bytes, twice, and its header: 1000 values, plain.
    let header = [
        0x15, 0x00, 0x15, 0x80, 0x7d, 0x15, 0x80, 0x7d, 0x2c, 0x15, 0xd0, 0x0f, 0x15, 0x00,
    ];
    assert_eq!(with_bytes(&path, &header, &header).await, Ok(1000));
    let changed = |at: usize, to: u8| {
        let mut changed = header;
        changed[at] = to;
        changed
    };
    for (lie, cause) in [
        ([0; 14], "it lacks its type or its lengths"),
        (changed(1, 0x06), "it lacks its values or their encoding"),
        (changed(1, 0x04), "it lacks its values or their encoding"),
        (changed(1, 0x20), "16 is no type of a page"),
        (changed(8, 0x3c), "it lacks its values or their encoding"),
        (changed(10, 0xd2), "have 1001 values, where 1000 are stated"),
    ] {
        let error = with_bytes(&path, &header, &lie).await.unwrap_err();
        assert!(error.contains(cause), "{cause}: {error}");
    }
}

#[tokio::test]
async fn pages_in_brotli_may_be_far_smaller_than_what_they_hold() {
    use parquet::basic::{BrotliLevel, Compression};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let zeros: ArrayRef = Arc::new(Int64Array::from(vec![0; 250_000]));
    let batch = RecordBatch::try_from_iter([("c", zeros)]).unwrap();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_compression(Compression::BROTLI(BrotliLevel::default()))
        .set_data_page_size_limit(4 << 20)
        .set_data_page_row_count_limit(1 << 20)
        .set_write_batch_size(1 << 20)
        .build();
    let file = File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let header = [0x15, 0x00, 0x15, 0x80, 0x92, 0xf4, 0x01];
    assert_eq!(with_bytes(&path, &header, &header).await, Ok(250_000));
}

/// The reader reserves memory for as many pages as an offset index states.
#[tokio::test]
async fn an_offset_index_of_more_pages_than_bytes_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    write(&path, &table(0));
    let sound = fs::read(&path).unwrap();
    let footer = Arc::new(read_footer(&File::open(&path).unwrap()).unwrap());
    let size = sound.len() as u64;
    let with_index = || index::with_index(&File::open(&path).unwrap(), size, &footer);
    assert!(with_index().unwrap().offset_index().is_some());
    let column = footer.row_group(1).column(0);
    let start = column.offset_index_offset().unwrap() as usize;
    // A list of six structs, then one of 2,147,483,647, and one of which the first is empty.
    assert_eq!(sound[start..start + 2], [0x19, 0x6c]);
    for lie in [
        &[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07][..],
        &[0x19, 0x6c, 0x00],
    ] {
        let mut bytes = sound.clone();
        bytes[start..start + lie.len()].copy_from_slice(lie);
        fs::write(&path, bytes).unwrap();
        assert!(with_index().is_none());
        // The rows are read all the same.
        let source = open(Format::Parquet, &path, &[]).await.unwrap();
        let above = compare(
            "id",
            Operator::Gt,
            ScalarValue::from(450i64),
            source.schema(),
        );
        let (keys, _) = read_all(&source, &[0], Some(above)).await.unwrap();
        assert_eq!(keys.len(), 700);
    }
}
