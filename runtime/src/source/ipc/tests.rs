use std::fs::{self, File};

use arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, Int64Array, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Int8Type, Int64Type};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use forebay_planner::source::Format;

use super::*;
use crate::source::testing::{open, read_all};

fn rows(first: i64, count: i64) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + count));
    // The file format has one dictionary for all record batches of a column.
    let keys = (first..first + count)
        .map(|n| (n % 4 != 3).then_some((n % 4) as i8))
        .collect();
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    let kinds = DictionaryArray::<Int8Type>::new(keys, values);
    let names: Vec<_> = (first..first + count)
        .map(|n| format!("name {n}"))
        .collect();
    let names: ArrayRef = Arc::new(StringArray::from(names));
    RecordBatch::try_from_iter_with_nullable([
        ("id", ids, false),
        ("kind", Arc::new(kinds), true),
        ("name", names, false),
    ])
    .unwrap()
}

fn write(path: &std::path::Path, batches: &[RecordBatch]) {
    let file = File::create(path).unwrap();
    let mut writer = FileWriter::try_new(file, &batches[0].schema()).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
}

#[tokio::test]
async fn splits_are_record_batches_and_rows_are_fetched_by_reference() {
    let dir = tempfile::tempdir().unwrap();
    write(
        &dir.path().join("a.arrow"),
        &[rows(0, 100), rows(100, 0), rows(100, 50)],
    );
    write(&dir.path().join("b.feather"), &[rows(150, 70)]);
    let source = open(Format::Arrow, dir.path(), &[]).await.unwrap();
    let splits: Vec<_> = source.manifest().files[0]
        .splits
        .iter()
        .map(|s| (s.first_row, s.rows))
        .collect();
    assert_eq!(splits, [(0, 100), (100, 0), (100, 50)]);
    assert_eq!(source.schema().field(1).data_type(), &DataType::Utf8);

    let (keys, all) = read_all(&source, &[0, 1, 2], None).await.unwrap();
    assert_eq!(keys.len(), 220);
    assert_eq!(all.column(0).as_primitive::<Int64Type>().values()[219], 219);
    assert_eq!(all.column(1).as_string::<i32>().value(150), "c");
    assert!(all.column(1).is_null(151));

    let wanted: Vec<u64> = (0..400).map(|i| i * 97 % 220).collect();
    let refs: Vec<_> = wanted
        .iter()
        .map(|&n| if n < 150 { (0, n) } else { (1, n - 150) })
        .collect();
    let (got, errors) = source.fetch(&refs, &[0, 1, 2]).await.unwrap();
    assert_eq!(errors, []);
    let expected = arrow::compute::take_record_batch(&all, &UInt64Array::from(wanted)).unwrap();
    assert_eq!(got, expected);
    let (one, _) = source.fetch(&[(1, 3)], &[2]).await.unwrap();
    assert_eq!(one.column(0).as_string::<i32>().value(0), "name 153");
    assert_eq!(source.fetch(&refs, &[]).await.unwrap().0.num_rows(), 400);
    assert_eq!(source.fetch(&[], &[0]).await.unwrap().0.num_rows(), 0);
    assert!(source.fetch(&[(0, 150)], &[0]).await.is_err());
    assert!(source.fetch(&[(2, 0)], &[0]).await.is_err());
}

#[tokio::test]
async fn large_record_batches_leave_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    write(
        &path,
        &[concat_batches(&rows(0, 1).schema(), &[rows(0, 30_000)]).unwrap()],
    );
    let source = open(Format::Arrow, &path, &[]).await.unwrap();
    let scan = Scan {
        projection: vec![0],
        prune: None,
    };
    let pieces: Vec<_> = source.read_split(0, 0, &scan).collect().await;
    assert!(pieces.len() > 1);
    assert_eq!(
        read_all(&source, &[0, 2], None).await.unwrap().0.len(),
        30_000
    );
}

#[tokio::test]
async fn damage_is_named_and_survived() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    write(&path, &[rows(0, 20), rows(20, 3)]);
    let sound = fs::read(&path).unwrap();
    for at in (0..sound.len()).step_by(5) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x55;
        fs::write(&path, bytes).unwrap();
        if let Ok(source) = open(Format::Arrow, &path, &[]).await {
            let columns: Vec<_> = (0..source.schema().fields().len()).collect();
            drop(read_all(&source, &columns, None).await);
        }
    }
    fs::write(&path, &sound[..sound.len() - 20]).unwrap();
    let error = open(Format::Arrow, &path, &[]).await.unwrap_err();
    assert!(
        error.contains("t.arrow' is not a sound ARROW file: it does not end"),
        "{error}"
    );
    let mut writer =
        StreamWriter::try_new(File::create(&path).unwrap(), &rows(0, 1).schema()).unwrap();
    writer.write(&rows(0, 3)).unwrap();
    writer.finish().unwrap();
    let error = open(Format::Arrow, &path, &[]).await.unwrap_err();
    assert!(error.contains("it holds an Arrow stream"), "{error}");
}
