use std::fs::{self, File};
use std::path::Path;

use arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, Int64Array, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Int8Type, Int64Type};
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use forebay_planner::source::Format;
use futures::StreamExt;

use super::*;
use crate::source::testing::{open, read_all};

fn rows(first: i64, count: i64) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + count));
    // The file format allows only one dictionary per column for all record batches.
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

fn write(path: &Path, batches: &[RecordBatch]) {
    compressed(path, None, batches);
}

fn compressed(
    path: &Path,
    compression: Option<arrow::ipc::CompressionType>,
    batches: &[RecordBatch],
) {
    let file = File::create(path).unwrap();
    let options = IpcWriteOptions::default()
        .try_with_compression(compression)
        .unwrap();
    let mut writer = FileWriter::try_new_with_options(file, &batches[0].schema(), options).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
}

#[tokio::test]
async fn splits_are_record_batches_of_which_columns_are_read() {
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

    let (_, some) = read_all(&source, &[0, 2], None).await.unwrap();
    assert_eq!(some, all.project(&[0, 2]).unwrap());
    assert_eq!(read_all(&source, &[], None).await.unwrap().0.len(), 220);
    assert_eq!(source.access(), crate::source::Access::Staged);
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
        keep: None,
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

/// A flipped bit never makes a file state more rows than it has, never aborts the decoder, and
/// never hides rows.
#[tokio::test]
async fn no_length_of_a_message_is_believed() {
    use arrow::ipc::CompressionType;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    for compression in [
        None,
        Some(CompressionType::LZ4_FRAME),
        Some(CompressionType::ZSTD),
    ] {
        compressed(&path, compression, &[rows(0, 40), rows(40, 5)]);
        let sound = fs::read(&path).unwrap();
        let source = open(Format::Arrow, &path, &[]).await.unwrap();
        assert_eq!(
            read_all(&source, &[0, 1, 2], None).await.unwrap().0.len(),
            45
        );
        let (mut refused, mut named) = (0, 0);
        for bit in (0..sound.len() * 8).step_by(37) {
            let mut bytes = sound.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bytes).unwrap();
            let outcome = match open(Format::Arrow, &path, &[]).await {
                Ok(source) => {
                    let stated: u64 = source.manifest().files[0]
                        .splits
                        .iter()
                        .map(|s| s.rows)
                        .sum();
                    assert!(stated <= 1000, "{stated} rows, bit {bit}");
                    let columns: Vec<_> = (0..source.schema().fields().len()).collect();
                    read_all(&source, &columns, None).await.map(|(keys, _)| {
                        assert_eq!(keys.len() as u64, stated, "bit {bit}");
                    })
                }
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                refused += 1;
                named += usize::from(error.contains("t.arrow'"));
            }
        }
        assert!(refused > 10, "{refused}");
        assert_eq!(refused, named);
    }
}

/// Sets the length that a compressed buffer states to wrong values, up to the largest possible one.
#[tokio::test]
async fn compressed_buffers_hold_what_they_state() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![7; 100_000]));
    let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    for codec in [
        arrow::ipc::CompressionType::LZ4_FRAME,
        arrow::ipc::CompressionType::ZSTD,
    ] {
        compressed(&path, Some(codec), std::slice::from_ref(&batch));
        let sound = fs::read(&path).unwrap();
        let stated = 800_000u64.to_le_bytes();
        let at = sound.windows(8).position(|bytes| bytes == stated).unwrap();
        for lie in [799_992, 800_001, 1 << 31, 1 << 40, i64::MAX, -2, 0] {
            let mut bytes = sound.clone();
            bytes[at..at + 8].copy_from_slice(&i64::to_le_bytes(lie));
            fs::write(&path, &bytes).unwrap();
            let source = open(Format::Arrow, &path, &[]).await.unwrap();
            let error = read_all(&source, &[0], None).await.unwrap_err();
            assert!(error.contains("record batch 0: Ipc error: "), "{error}");
            assert!(error.contains("compressed buffer"), "{error}");
        }
        fs::write(&path, &sound).unwrap();
        let source = open(Format::Arrow, &path, &[]).await.unwrap();
        assert_eq!(
            read_all(&source, &[0], None).await.unwrap().1.num_rows(),
            100_000
        );
    }
}
