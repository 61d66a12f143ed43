use std::fs;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_avro::writer::AvroWriter;
use forebay_planner::source::Format;

use crate::source::testing::{open, read_all};

fn rows(first: i64, count: i64) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + count));
    let names: Vec<_> = (first..first + count)
        .map(|n| format!("name {n}"))
        .collect();
    let names: ArrayRef = Arc::new(StringArray::from(names));
    RecordBatch::try_from_iter([("id", ids), ("name", names)]).unwrap()
}

fn file(blocks: i64, each: i64) -> Vec<u8> {
    let schema = rows(0, 1).schema().as_ref().clone();
    let mut writer = AvroWriter::new(Vec::new(), schema).unwrap();
    for block in 0..blocks {
        writer.write(&rows(block * each, each)).unwrap();
    }
    writer.finish().unwrap();
    writer.into_inner()
}

#[tokio::test]
async fn splits_are_runs_of_blocks() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("t.avro"), file(21, 1000)).unwrap();
    let source = open(Format::Avro, dir.path(), &[]).await.unwrap();
    let splits: Vec<_> = source.manifest().files[0]
        .splits
        .iter()
        .map(|s| (s.first_row, s.rows))
        .collect();
    assert_eq!(splits, [(0, 9000), (9000, 9000), (18_000, 3000)]);
    let (keys, batch) = read_all(&source, &[0, 1], None).await.unwrap();
    assert!(keys.iter().zip(0..21_000).all(|(key, n)| *key == (0, n)));
    assert_eq!(batch.columns(), rows(0, 21_000).columns());
    let (_, names) = read_all(&source, &[1], None).await.unwrap();
    assert_eq!(names.column(0), batch.column(1));
    let (keys, _) = read_all(&source, &[], None).await.unwrap();
    assert_eq!(keys.len(), 21_000);
}

#[tokio::test]
async fn damage_is_named_and_survived() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.avro");
    let sound = file(3, 5);
    for at in (0..sound.len()).step_by(3) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x55;
        fs::write(&path, bytes).unwrap();
        if let Ok(source) = open(Format::Avro, &path, &[]).await {
            let columns: Vec<_> = (0..source.schema().fields().len()).collect();
            drop(read_all(&source, &columns, None).await);
        }
    }
    fs::write(&path, &sound[..sound.len() - 5]).unwrap();
    let error = open(Format::Avro, &path, &[]).await.unwrap_err();
    assert!(
        error.contains("t.avro' is not a sound AVRO file: block at byte"),
        "{error}"
    );
    fs::write(&path, "Obj").unwrap();
    let error = open(Format::Avro, &path, &[]).await.unwrap_err();
    assert!(error.contains("does not begin as an Avro"), "{error}");
}

/// Returns the file `sound`, changed so that a block that stated `n` rows states `count(n)` rows.
fn with_counts(sound: &[u8], count: impl Fn(u64) -> u64) -> Vec<u8> {
    use super::container::{RangeReader, put_long};
    let size = sound.len() as u64;
    let mut stored = RangeReader::new(std::io::Cursor::new(sound), 0, size);
    let header = stored.header().unwrap();
    let mut bytes = sound[..stored.at() as usize].to_vec();
    while !stored.is_at_end() {
        let (rows, data) = stored.block(&header).unwrap();
        put_long(&mut bytes, count(rows));
        put_long(&mut bytes, data.len() as u64);
        bytes.extend_from_slice(&data);
        bytes.extend_from_slice(&header.sync);
    }
    bytes
}

fn compressed(codec: Option<arrow_avro::compression::CompressionCodec>) -> Vec<u8> {
    use arrow_avro::writer::{WriterBuilder, format::AvroOcfFormat};
    let schema = rows(0, 1).schema().as_ref().clone();
    let mut writer = WriterBuilder::new(schema)
        .with_compression(codec)
        .build::<_, AvroOcfFormat>(Vec::new())
        .unwrap();
    for block in 0..3 {
        writer.write(&rows(block * 10, 10)).unwrap();
    }
    writer.finish().unwrap();
    writer.into_inner()
}

/// Without the check, `arrow-avro` waits for ever at the end of a block that holds more rows than
/// it states.
#[tokio::test]
async fn blocks_hold_the_rows_that_they_state() {
    use arrow_avro::compression::CompressionCodec::{Bzip2, Deflate, Snappy, Xz, ZStandard};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.avro");
    for codec in [
        None,
        Some(Deflate),
        Some(Snappy),
        Some(ZStandard),
        Some(Bzip2),
        Some(Xz),
    ] {
        let sound = compressed(codec);
        fs::write(&path, with_counts(&sound, |rows| rows)).unwrap();
        let source = open(Format::Avro, &path, &[]).await.unwrap();
        let (keys, batch) = read_all(&source, &[0, 1], None).await.unwrap();
        assert_eq!(keys.len(), 30);
        assert_eq!(batch.columns(), rows(0, 30).columns());
        for (count, cause) in [(9, "are left behind the 9 rows"), (11, "row 10 of the 11")] {
            fs::write(&path, with_counts(&sound, |_| count)).unwrap();
            let source = open(Format::Avro, &path, &[]).await.unwrap();
            let error = read_all(&source, &[0], None).await.unwrap_err();
            assert!(
                error.contains("t.avro' is not a sound AVRO file"),
                "{error}"
            );
            assert!(
                error.contains("block at byte") && error.contains(cause),
                "{error}"
            );
        }
        fs::write(&path, with_counts(&sound, |_| 0)).unwrap();
        let error = open(Format::Avro, &path, &[]).await.unwrap_err();
        assert!(error.contains("it states 0 rows, but holds"), "{error}");
        fs::write(&path, with_counts(&sound, |_| 1 << 40)).unwrap();
        let error = open(Format::Avro, &path, &[]).await.unwrap_err();
        assert!(error.contains("it states 1099511627776 rows in"), "{error}");
    }
}
