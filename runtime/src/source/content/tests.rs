//! Tests of content identity: of what is hashed, and of files that change after their source was opened.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::ipc::writer::FileWriter;
use arrow_avro::writer::AvroWriter;
use forebay_planner::source::Format;
use parquet::arrow::ArrowWriter;

use super::*;
use crate::source::testing::{open, read_all};

/// Bytes of a file of the format with one column of the numbers.
fn file(format: Format, numbers: &[i64]) -> Vec<u8> {
    let column: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let mut bytes = Vec::new();
    match format {
        Format::Csv => {
            bytes.extend(b"n\n");
            numbers.iter().for_each(|n| writeln!(bytes, "{n}").unwrap());
        }
        Format::Json => {
            numbers
                .iter()
                .for_each(|n| writeln!(bytes, "{{\"n\": {n}}}").unwrap());
        }
        Format::Avro => {
            let mut writer = AvroWriter::new(&mut bytes, batch.schema().as_ref().clone()).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
        }
        Format::Arrow => {
            let mut writer = FileWriter::try_new(&mut bytes, &batch.schema()).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
        }
        Format::Parquet => {
            let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
        }
        Format::ImageFolder => unreachable!("an image has no column"),
    }
    bytes
}

const FORMATS: [(Format, &str); 5] = [
    (Format::Csv, "t.csv"),
    (Format::Json, "t.json"),
    (Format::Avro, "t.avro"),
    (Format::Arrow, "t.arrow"),
    (Format::Parquet, "t.parquet"),
];

/// Writes a file as if that had been some time after the present.
fn write_later(path: &Path, bytes: &[u8], seconds: u64) {
    fs::write(path, bytes).unwrap();
    let time = SystemTime::now() + Duration::from_secs(seconds);
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(time)
        .unwrap();
}

#[tokio::test]
async fn other_values_in_as_many_bytes_are_another_content() {
    let folder = tempfile::tempdir().unwrap();
    for (format, name) in FORMATS {
        let path = folder.path().join(name);
        let mut contents = Vec::new();
        // The least and the greatest value are the same: a footer's statistics are, too.
        for numbers in [[10, 11, 12, 19], [10, 12, 11, 19], [10, 11, 12, 19]] {
            fs::write(&path, file(format, &numbers)).unwrap();
            let source = open(format, &path, &[]).await.unwrap();
            let file = &source.manifest().files[0];
            contents.push((file.size, file.content));
        }
        assert_eq!(contents[0].0, contents[1].0, "{format}: sizes");
        assert_ne!(contents[0].1, contents[1].1, "{format}");
        // Writers of Avro draw a marker for each file.
        if format != Format::Avro {
            assert_eq!(contents[0], contents[2], "{format}");
        }
    }
}

#[tokio::test]
async fn a_file_that_is_written_again_after_opening_is_refused_unless_it_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for (format, name) in FORMATS {
        let path = folder.path().join(name);
        let first = file(format, &[10, 11, 12, 19]);
        fs::write(&path, &first).unwrap();
        let source = open(format, &path, &[]).await.unwrap();
        write_later(&path, &first, 10);
        let (keys, _) = read_all(&source, &[0], None).await.unwrap();
        assert_eq!(keys.len(), 4, "{format}");
        // Arrow's record batch was read, so another source has to read the changed file.
        let source = open(format, &path, &[]).await.unwrap();
        write_later(&path, &file(format, &[10, 12, 11, 19]), 20);
        let error = read_all(&source, &[0], None).await.unwrap_err();
        assert!(
            error.contains("changed since the source was opened"),
            "{format}: {error}"
        );
    }
}

#[tokio::test]
async fn options_that_decide_rows_are_part_of_the_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    fs::write(&path, "a,b\n1,-\n").unwrap();
    let content = async |options: &[(&str, &str)]| {
        let source = open(Format::Csv, &path, options).await.unwrap();
        source.manifest().files[0].content
    };
    let plain = content(&[]).await;
    assert_eq!(
        plain,
        content(&[("delimiter", ","), ("header", "true")]).await
    );
    assert_ne!(plain, content(&[("null", "-")]).await);
    assert_ne!(plain, content(&[("header", "false")]).await);
    assert_ne!(plain, content(&[("delimiter", ";")]).await);
}

#[test]
fn format_options_and_bytes_make_the_hash() {
    let hash = |format, options, bytes: &[u8]| {
        let mut hasher = ContentHasher::new(format, options);
        hasher.update(bytes);
        hasher.finish()
    };
    let hashes = [
        hash("CSV", "", b"x"),
        hash("CSV", "x", b""),
        hash("CSVx", "", b""),
        hash("CSV", "", b"y"),
    ];
    for (at, of) in hashes.iter().enumerate() {
        assert_eq!(hashes.iter().position(|other| other == of), Some(at));
    }
}

#[test]
fn a_file_has_one_hash_however_it_is_read() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..700_000u32)
        .map(|n| (n.wrapping_mul(n) >> 3) as u8)
        .collect();
    file.write_all(&bytes).unwrap();
    let mut hasher = ContentHasher::new("CSV", "");
    let whole = hasher.clone().whole_file(file.path()).unwrap();
    let mut read = HashedRead::new(File::open(file.path()).unwrap(), hasher.clone());
    io::copy(&mut read, &mut io::sink()).unwrap();
    assert_eq!(read.hash(), whole);
    hasher.update(&bytes);
    assert_eq!(hasher.finish(), whole);
}

#[test]
fn the_tail_of_a_small_file_is_the_file() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
    file.write_all(&bytes).unwrap();
    let mut opened = File::open(file.path()).unwrap();
    let mut tail = |size, least| read_tail(&mut opened, size, least).unwrap();
    assert_eq!(tail(100, 0), bytes[..100]);
    assert_eq!(tail(100_000, 8), bytes[100_000 - TAIL_BYTES as usize..]);
    assert_eq!(tail(100_000, 90_000), bytes[10_000..]);
    assert_eq!(tail(100_000, u64::MAX), bytes);
}
