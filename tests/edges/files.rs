//! Files from which a reader could lose rows unnoticed: dangling links, unclosed quotes, wrong row
//! counts, archives.

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::ipc::writer::FileWriter;
use arrow_avro::writer::AvroWriter;
use forebay::digest::Digest;
use forebay::{RunConfig, Session};

/// Runs a query for one epoch. Returns the number of rows and the digest of its stream, or the
/// message of its error.
async fn run(query: &str, config: RunConfig) -> Result<(usize, String), String> {
    let session = Session::new();
    let sql = format!("CREATE PIPELINE p AS {query}");
    session.execute(&sql).await.map_err(|e| e.to_string())?;
    let config = RunConfig {
        epochs: Some(1),
        ..config
    };
    let mut run = session.run("p", config).await.map_err(|e| e.to_string())?;
    let (mut rows, mut digest) = (0, Digest::default());
    while let Some(batch) = run.next().await {
        let batch = batch.map_err(|e| e.to_string())?;
        rows += batch.batch.num_rows();
        digest.update(&batch.batch).unwrap();
    }
    Ok((rows, digest.finish()))
}

async fn error_of(query: &str) -> String {
    run(query, RunConfig::default()).await.unwrap_err()
}

fn rows(first: i64, count: i64) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + count));
    let names = (first..first + count).map(|n| format!("name {n}"));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(names));
    RecordBatch::try_from_iter([("id", ids), ("name", names)]).unwrap()
}

fn arrow_file(path: &Path, batches: impl IntoIterator<Item = RecordBatch>) {
    let file = fs::File::create(path).unwrap();
    let mut writer = FileWriter::try_new(file, &rows(0, 1).schema()).unwrap();
    for batch in batches {
        writer.write(&batch).unwrap();
    }
    writer.finish().unwrap();
}

#[tokio::test]
async fn a_dangling_link_is_not_a_missing_file() {
    let functions = [
        ("csv", "csv"),
        ("json", "jsonl"),
        ("avro", "avro"),
        ("arrow", "arrow"),
        ("parquet", "parquet"),
        ("images", "jpg"),
    ];
    for (function, extension) in functions {
        let dir = tempfile::tempdir().unwrap();
        let name = format!("b.{extension}");
        fs::write(dir.path().join(format!("a.{extension}")), "").unwrap();
        symlink("gone", dir.path().join(&name)).unwrap();
        let here = dir.path().display();
        for location in [format!("{here}"), format!("{here}/*.{extension}")] {
            let error = error_of(&format!("SELECT * FROM {function}('{location}')")).await;
            assert!(
                error.contains(&format!("{name}' is a symbolic link to 'gone'")),
                "{error}"
            );
            assert!(error.contains("mend the link, or remove it"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_file_that_is_not_an_image_is_refused_when_planned() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("shards")).unwrap();
    for name in ["x.tgz", "shards/a.tar", "notes.txt"] {
        fs::write(dir.path().join(name), "no image").unwrap();
    }
    let session = Session::new();
    for (name, hint) in [
        ("x.tgz", true),
        ("*.tgz", true),
        ("shards", true),
        ("notes.txt", false),
    ] {
        let location = dir.path().join(name);
        let sql = format!(
            "CREATE PIPELINE p AS SELECT label FROM images('{}')",
            location.display()
        );
        let error = session.execute(&sql).await.unwrap_err().to_string();
        assert!(
            error.contains("image file") && error.contains(".jpg, .jpeg, .png"),
            "{error}"
        );
        assert_eq!(
            error.contains("unpack them, and name the folder"),
            hint,
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_quote_that_is_not_closed_is_fatal_under_every_policy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.csv");
    fs::write(&path, "id,text\n1,a\n2,\"b\n3,c\n4,d\n").unwrap();
    for policy in ["fail", "skip", "null"] {
        let query = format!(
            "SELECT * FROM csv('{}') BATCH 2 OPTIONS (on_error = '{policy}')",
            path.display()
        );
        let error = error_of(&query).await;
        assert!(
            error.contains("t.csv' is not a sound CSV file: row 1: the quote that opens in line 3"),
            "{error}"
        );
    }
    let query = format!("SELECT * FROM csv('{}', quote => '''')", path.display());
    assert_eq!(run(&query, RunConfig::default()).await.unwrap().0, 4);
}

/// The header of this Avro block counts one row too many. Arrow's decoder would never reach the end
/// of such a block.
#[tokio::test]
async fn an_avro_block_with_a_row_too_many_ends_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.avro");
    let mut writer = AvroWriter::new(
        Cursor::new(Vec::new()),
        rows(0, 1).schema().as_ref().clone(),
    )
    .unwrap();
    writer.write(&rows(0, 10)).unwrap();
    writer.finish().unwrap();
    let mut bytes = writer.into_inner().into_inner();
    // The number of rows in the block follows the sync marker at the end of the header. The same
    // marker ends the block, and so the file.
    let marker = bytes[bytes.len() - 16..].to_vec();
    let at = bytes
        .windows(16)
        .position(|window| window == marker)
        .unwrap()
        + 16;
    assert_eq!(bytes[at], 20);
    let query = format!("SELECT * FROM avro('{}') BATCH 4", path.display());
    for (count, cause) in [
        (18, "are left behind the 9 rows"),
        (22, "row 10 of the 11"),
        (19, "negative length"),
    ] {
        bytes[at] = count;
        fs::write(&path, &bytes).unwrap();
        let error = error_of(&query).await;
        assert!(
            error.contains("t.avro' is not a sound AVRO file") && error.contains(cause),
            "{error}"
        );
    }
}

/// The record batches of an Arrow file are staged as the row groups of a Parquet file are, so both
/// files give the same stream within the same memory limit.
#[tokio::test]
async fn arrow_files_shuffle_as_parquet_does() {
    let dir = tempfile::tempdir().unwrap();
    let batches: Vec<RecordBatch> = (0..40).map(|n| rows(n * 500, 500)).collect();
    // The file name is part of the key of a row, so both files have the same name.
    let (arrow, parquet) = (dir.path().join("a/t"), dir.path().join("p/t"));
    fs::create_dir_all(arrow.parent().unwrap()).unwrap();
    fs::create_dir_all(parquet.parent().unwrap()).unwrap();
    arrow_file(&arrow, batches.clone());
    let props = parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(500))
        .build();
    let file = fs::File::create(&parquet).unwrap();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(file, batches[0].schema(), Some(props)).unwrap();
    for batch in &batches {
        writer.write(batch).unwrap();
    }
    writer.close().unwrap();
    for clauses in [
        "SHUFFLE GLOBALLY SEED 5",
        "SHUFFLE WITHIN 3000 ROWS SEED 5",
        "",
    ] {
        let query = |function: &str, path: &Path| {
            format!(
                "SELECT * FROM {function}('{}') {clauses} BATCH 64",
                path.display()
            )
        };
        let expected = run(&query("parquet", &parquet), RunConfig::default())
            .await
            .unwrap();
        assert_eq!(expected.0, 20_000);
        // With the low memory limit, staged rows are spilled.
        for memory_limit in [None, Some(20 << 20)] {
            let config = RunConfig {
                memory_limit,
                threads: Some(2),
                ..RunConfig::default()
            };
            let found = run(&query("arrow", &arrow), config).await.unwrap();
            assert_eq!(found, expected, "{clauses}");
        }
    }
}
