//! Tests of shards of samples.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use flate2::write::GzEncoder;
use forebay_planner::source::Format;

use super::index::key_and_extension;
use super::*;
use crate::source::Source;
use crate::source::testing::{open, read_all, tar, tar_entry};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Creates a folder with one file, which has this name and these bytes.
fn folder(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

async fn error_of(bytes: &[u8]) -> String {
    let (_folder, path) = folder("t.tar", bytes);
    open(Format::WebDataset, &path, &[]).await.unwrap_err()
}

fn text(batch: &RecordBatch, column: usize) -> Vec<Option<&str>> {
    batch.column(column).as_string::<i32>().iter().collect()
}

fn bytes(batch: &RecordBatch, column: usize) -> Vec<Option<&[u8]>> {
    batch.column(column).as_binary::<i32>().iter().collect()
}

#[tokio::test]
async fn samples_are_runs_of_entries_with_the_same_key() {
    let folder = tempfile::tempdir().unwrap();
    let first = tar(&[
        ("README", b"no extension"),
        ("a/000.JPG", b"\xff\xd8"),
        ("a/000.seg.png", b"mask"),
        ("a/000.cls", b"7\n"),
        ("a/._000.jpg", b"hidden"),
        ("a/001.json", b"{\"x\": 1}"),
        ("a/001.cls", b"-3"),
        ("__meta__/all.json", b"{}"),
        ("a/000.jpg", b"again"),
        ("a.b/000.txt", "ü".as_bytes()),
        ("./000.txt", b""),
    ]);
    fs::write(folder.path().join("0.tar"), first).unwrap();
    fs::write(
        folder.path().join("1.tgz"),
        gzip(&tar(&[("z.jpg", b"z"), ("z.npy", &[0; 3])])),
    )
    .unwrap();
    fs::write(folder.path().join("2.TAR.GZ"), gzip(&tar(&[]))).unwrap();
    fs::write(folder.path().join("no.gz"), "not listed").unwrap();
    let source = open(Format::WebDataset, folder.path(), &[]).await.unwrap();
    let fields = source.schema().fields().iter();
    let fields: Vec<(&str, &DataType, bool)> = fields
        .map(|f| (f.name().as_str(), f.data_type(), f.is_nullable()))
        .collect();
    let (binary, utf8) = (&DataType::Binary, &DataType::Utf8);
    let expected = [
        ("__key__", utf8, false),
        ("cls", &DataType::Int64, true),
        ("jpg", binary, true),
        ("json", utf8, true),
        ("npy", binary, true),
        ("seg.png", binary, true),
        ("txt", utf8, true),
    ];
    assert_eq!(fields, expected);
    assert_eq!(source.access(), Access::Staged);
    let files = source.manifest().files.iter();
    let files: Vec<(&str, u64)> = files
        .map(|file| (file.path.as_str(), file.rows()))
        .collect();
    assert_eq!(files, [("0.tar", 5), ("1.tgz", 1), ("2.TAR.GZ", 0)]);

    let (keys, batch) = read_all(&source, &[0, 1, 2, 3, 4, 5, 6], None)
        .await
        .unwrap();
    assert_eq!(keys, [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0)]);
    let names = ["a/000", "a/001", "a/000", "a.b/000", "./000", "z"].map(Some);
    assert_eq!(text(&batch, 0), names);
    let classes: Vec<Option<i64>> = batch.column(1).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(classes, [Some(7), Some(-3), None, None, None, None]);
    let images: [Option<&[u8]>; 6] = [
        Some(b"\xff\xd8"),
        None,
        Some(b"again"),
        None,
        None,
        Some(b"z"),
    ];
    assert_eq!(bytes(&batch, 2), images);
    assert_eq!(
        text(&batch, 3),
        [None, Some("{\"x\": 1}"), None, None, None, None]
    );
    assert_eq!(bytes(&batch, 4)[5], Some([0; 3].as_slice()));
    assert_eq!(bytes(&batch, 5)[0], Some(b"mask".as_slice()));
    assert_eq!(
        text(&batch, 6),
        [None, None, None, Some("ü"), Some(""), None]
    );
}

#[tokio::test]
async fn plain_and_compressed_shards_have_the_same_rows() {
    let files: Vec<(String, Vec<u8>)> = (0..1000usize)
        .flat_map(|i| {
            let image = vec![i as u8; i * 37 % 5000];
            let class = (i % 9 != 0).then(|| (format!("{i:04}.cls"), i.to_string().into_bytes()));
            [(format!("{i:04}.bin"), image)].into_iter().chain(class)
        })
        .collect();
    let files: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(name, c)| (name.as_str(), c.as_slice()))
        .collect();
    let archive = tar(&files);
    let (_plain, path) = folder("t.tar", &archive);
    let plain = open(Format::WebDataset, &path, &[]).await.unwrap();
    // A shard counts as compressed because of its first bytes, whatever its name is.
    let (_compressed, path) = folder("t.tar", &gzip(&archive));
    let compressed = open(Format::WebDataset, &path, &[]).await.unwrap();
    assert_eq!(
        (plain.access(), compressed.access()),
        (Access::Direct, Access::Staged)
    );
    let rows = |source: &Arc<dyn Source>| -> Vec<u64> {
        source.manifest().files[0]
            .splits
            .iter()
            .map(|split| split.rows)
            .collect()
    };
    assert_eq!(
        (rows(&plain), rows(&compressed)),
        (vec![256, 256, 256, 232], vec![1000])
    );
    for projection in [&[0usize, 1, 2][..], &[2], &[]] {
        let expected = read_all(&plain, projection, None).await.unwrap();
        assert_eq!(expected.1.num_rows(), 1000);
        assert_eq!(
            read_all(&compressed, projection, None).await.unwrap(),
            expected
        );
    }
    let (_, all) = read_all(&plain, &[1, 2], None).await.unwrap();
    let order: Vec<u64> = (0..1500).map(|i| i * 7919 % 1000).collect();
    let wanted: Vec<(u32, u64)> = order.iter().map(|&row| (0, row)).collect();
    let (batch, errors) = plain.fetch(&wanted, &[1, 2]).await.unwrap();
    assert_eq!(errors, []);
    let indices = arrow::array::UInt64Array::from(order);
    assert_eq!(
        batch,
        arrow::compute::take_record_batch(&all, &indices).unwrap()
    );
    assert!(compressed.fetch(&wanted, &[1]).await.is_err());
    assert!(plain.fetch(&[(0, 1000)], &[1]).await.is_err());
}

#[tokio::test]
async fn a_fetch_reads_more_shards_than_it_holds_open() {
    let folder = tempfile::tempdir().unwrap();
    let shards = 3 * MAX_OPEN as u32;
    for shard in 0..shards {
        let archive = tar(&[("a.cls", shard.to_string().as_bytes())]);
        fs::write(folder.path().join(format!("{shard:03}.tar")), archive).unwrap();
    }
    let source = open(Format::WebDataset, folder.path(), &[]).await.unwrap();
    let rows: Vec<(u32, u64)> = (0..2 * shards).map(|n| (n * 7 % shards, 0)).collect();
    let (batch, _) = source.fetch(&rows, &[1]).await.unwrap();
    let expected: Vec<i64> = rows.iter().map(|(file, _)| i64::from(*file)).collect();
    assert_eq!(
        batch.column(0).as_primitive::<Int64Type>().values(),
        &expected
    );
}

#[tokio::test]
async fn values_that_are_wrong_are_errors_of_their_rows() {
    let archive = tar(&[
        ("a.cls", b"1"),
        ("b.cls", b"cat"),
        ("b.txt", b"ok"),
        ("c.txt", b"\xff"),
    ]);
    let (_folder, path) = folder("t.tar", &archive);
    let source = open(Format::WebDataset, &path, &[]).await.unwrap();
    let (batch, errors) = source
        .fetch(&[(0, 2), (0, 1), (0, 0)], &[1, 2])
        .await
        .unwrap();
    let causes: Vec<(usize, usize, &str)> = errors
        .iter()
        .map(|error| (error.row, error.column, error.cause.as_str()))
        .collect();
    let name = path.display();
    let utf8 = format!(
        "'{name}' is not a sound WEBDATASET file: sample 'c', txt: not UTF-8: invalid utf-8 sequence of 1 bytes from index 0"
    );
    let integer = format!(
        "'{name}' is not a sound WEBDATASET file: sample 'b', cls: 'cat' is not an integer"
    );
    assert_eq!(causes, [(0, 1, utf8.as_str()), (1, 0, integer.as_str())]);
    assert_eq!(text(&batch, 1), [None, Some("ok"), None]);
    let error = read_all(&source, &[1], None).await.unwrap_err();
    assert!(error.contains(&integer), "{error}");
    read_all(&source, &[0], None).await.unwrap();
}

#[tokio::test]
async fn damage_is_never_the_end_of_the_data() {
    let archive = tar(&[("a.txt", b"abc"), ("b.txt", &[b'x'; 3000])]);
    for length in [0, 1, 511, 512, 515, 1024, 1536, 4000, archive.len() - 1024] {
        let error = error_of(&archive[..length]).await;
        assert!(
            error.contains("t.tar' is not a sound WEBDATASET file") && error.contains("cut off"),
            "{length}: {error}"
        );
    }
    let compressed = gzip(&archive);
    for length in [2, 10, 40, compressed.len() - 1] {
        let error = error_of(&compressed[..length]).await;
        assert!(
            error.contains("t.tar' is not a sound WEBDATASET file"),
            "{length}: {error}"
        );
    }
    let mut damaged = compressed.clone();
    let checksum = damaged.len() - 8;
    damaged[checksum] ^= 1;
    assert!(
        error_of(&damaged)
            .await
            .contains("is not a sound WEBDATASET file")
    );
    // A file of two concatenated gzip members is one archive.
    let (head, tail) = archive.split_at(700);
    let (_folder, path) = folder("t.tar.gz", &[gzip(head), gzip(tail)].concat());
    let source = open(Format::WebDataset, &path, &[]).await.unwrap();
    assert_eq!(source.manifest().files[0].rows(), 2);
}

#[tokio::test]
async fn entries_that_make_no_column_are_named() {
    let error = error_of(&tar(&[("x/a.jpg", b""), ("x/a.JPG", b"")])).await;
    assert!(
        error.contains("sample 'x/a' has two entries with the extension 'jpg'; remove one"),
        "{error}"
    );
    for name in ["a.", "a.__KEY__"] {
        let error = error_of(&tar(&[(name, b"")])).await;
        assert!(
            error.contains(&format!("entry '{name}' has the extension")),
            "{error}"
        );
    }
    let names: Vec<String> = (0..=MAX_EXTENSIONS)
        .map(|i| format!("photo.{i}.jpg"))
        .collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
    let error = error_of(&tar(&files)).await;
    assert!(
        error.contains("1001 different extensions, above the limit of 1000"),
        "{error}"
    );
    let large = [
        tar_entry(b'0', "a.bin", b""),
        crate::source::testing::tar_header(b'0', "b.bin", 1 << 29),
    ]
    .concat();
    let zeros = vec![0; 1 << 20];
    let mut bomb = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    bomb.write_all(&large).unwrap();
    (0..514).for_each(|_| bomb.write_all(&zeros).unwrap());
    let error = error_of(&bomb.finish().unwrap()).await;
    assert!(
        error.contains("entry 'b.bin' has 536870912 bytes, above the limit of 268435456"),
        "{error}"
    );
}

#[tokio::test]
async fn a_column_list_and_options_are_refused() {
    let (_folder, path) = folder("t.tar", &tar(&[]));
    let error = open(Format::WebDataset, &path, &[("keys", "x")])
        .await
        .unwrap_err();
    assert!(
        error.contains("WEBDATASET has no option 'keys' (it has none)"),
        "{error}"
    );
    let mut spec = crate::source::testing::spec(Format::WebDataset, &path, &[]);
    spec.columns = Some(Arc::new(Schema::empty()));
    let error = crate::source::FileResolver::default()
        .open(&spec)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("leave out the column list"), "{error}");
}

#[test]
fn keys_end_at_the_first_dot_of_the_base_name() {
    for (name, expected) in [
        ("a.jpg", Some(("a", "jpg"))),
        ("a.b/c.d.e", Some(("a.b/c", "d.e"))),
        ("./a.jpg", Some(("./a", "jpg"))),
        ("a.b/c", None),
        ("a", None),
        ("", None),
        (".a.jpg", None),
        ("b/.a.jpg", None),
        ("a.", Some(("a", ""))),
        ("__a__.jpg", Some(("__a__", "jpg"))),
        ("__a__/b.jpg", None),
    ] {
        assert_eq!(key_and_extension(name), expected, "{name}");
    }
}
