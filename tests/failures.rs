//! Failed rows: 100 of 2,000 photos are damaged. They are settled under every policy, recorded as
//! dead letters, counted against an error budget, and replayed after they are mended.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use common::photos;
use forebay::{Batch, RunConfig, RunInternals, RunScope, Session, dead_letters};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use sha2::{Digest, Sha256};

const PHOTOS: u32 = 2_000;
const DAMAGED: u32 = 100;

/// Truncates the file of one photo in twenty. Returns the paths of these files with their original
/// contents.
fn damage(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = (0..PHOTOS).filter(|i| i % (PHOTOS / DAMAGED) == 7);
    let files = files.map(|i| {
        folder
            .join(format!("class{}", i % 4))
            .join(format!("{i:04}.jpg"))
    });
    files
        .map(|file| {
            let whole = std::fs::read(&file).unwrap();
            std::fs::write(&file, &whole[..whole.len() / 3]).unwrap();
            (file, whole)
        })
        .collect()
}

async fn session(folder: &Path) -> Session {
    let session = Session::new();
    let sql = format!(
        "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION '{}'",
        folder.display()
    );
    session.execute(&sql).await.unwrap();
    session
}

async fn create(session: &Session, options: &str) {
    let sql = format!(
        "CREATE OR REPLACE PIPELINE p AS
         SELECT path, random_hflip(resize(decode_image(image), 8, 8)) AS pixels FROM photos
         SHUFFLE WITHIN 300 ROWS SEED 3 BATCH 64 OPTIONS ({options})"
    );
    session.execute(&sql).await.unwrap();
}

async fn run(session: &Session, config: RunConfig) -> (Vec<Batch>, Option<String>) {
    let mut run = session.run("p", config).await.unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = run.next().await {
        match batch {
            Ok(batch) => batches.push(batch),
            Err(error) => return (batches, Some(error.to_string())),
        }
    }
    (batches, None)
}

fn paths(batches: &[Batch]) -> Vec<String> {
    let paths = batches.iter().flat_map(|batch| {
        let paths = batch.batch.column(0).as_string::<i32>().clone();
        (0..paths.len()).map(move |i| paths.value(i).to_owned())
    });
    paths.collect()
}

fn relative(folder: &Path, file: &Path) -> String {
    let file = file.strip_prefix(folder).unwrap();
    file.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_policy_settles_damaged_photos() {
    let folder = tempfile::tempdir().unwrap();
    let (data, dead) = (folder.path().join("photos"), folder.path().join("dead"));
    photos(&data, PHOTOS, 4);
    let all = session(&data).await;
    create(&all, "on_error = 'fail'").await;
    let (whole, error) = run(&all, RunConfig::default()).await;
    assert_eq!(error, None);
    let order = paths(&whole);
    let damaged = damage(&data);
    let bad: BTreeSet<String> = damaged
        .iter()
        .map(|(file, _)| relative(&data, file))
        .collect();
    assert_eq!(bad.len(), DAMAGED as usize);
    let session = session(&data).await;

    // on_error = 'fail': the error reports the first failed row in stream order.
    create(&session, "on_error = 'fail'").await;
    let (_, error) = run(&session, RunConfig::default()).await;
    let first = order.iter().find(|path| bad.contains(*path)).unwrap();
    let error = error.unwrap();
    assert!(
        error.contains(&format!("{first}, row 0: decode_image")),
        "{error}"
    );

    // on_error = 'skip': all other rows stay in the same order and batches, and each failed row has
    // a dead letter.
    let options = format!(
        "on_error = 'skip', dead_letters = '{}', dead_letter_bytes = '1MiB'",
        dead.display()
    );
    create(&session, &options).await;
    let (skipped, error) = run(&session, RunConfig::default()).await;
    assert_eq!((error, skipped.len()), (None, whole.len()));
    for (got, planned) in skipped.iter().zip(&whole) {
        let good = paths(std::slice::from_ref(planned)).into_iter();
        let good: Vec<String> = good.filter(|path| !bad.contains(path)).collect();
        assert_eq!(paths(std::slice::from_ref(got)), good);
    }
    let told = dead_letters::read(&dead).unwrap();
    let files: BTreeSet<String> = told.iter().map(|letter| letter.file.clone()).collect();
    assert_eq!((told.len(), files), (DAMAGED as usize, bad.clone()));
    inputs_are_kept(&dead, &data);

    // on_error = 'replace': all batches are full.
    create(&session, "on_error = 'replace'").await;
    let (replaced, error) = run(&session, RunConfig::default()).await;
    assert_eq!(error, None);
    let sizes = |batches: &[Batch]| -> Vec<usize> {
        batches.iter().map(|batch| batch.batch.num_rows()).collect()
    };
    assert_eq!(sizes(&replaced), sizes(&whole));

    // A budget of 1 % of 2,000 rows is 20 rows, so the 21st failed row ends the run.
    create(&session, "on_error = 'skip', error_budget = '1 %'").await;
    let (_, error) = run(&session, RunConfig::default()).await;
    let error = error.unwrap();
    assert!(error.starts_with("21 of the "), "{error}");
    assert!(error.contains("allows 20 of 2000"), "{error}");
    create(&session, "on_error = 'skip', error_budget = 100").await;
    assert_eq!(run(&session, RunConfig::default()).await.1, None);

    // After the photos are mended, the rows are replayed with their original values.
    for (file, bytes) in &damaged {
        std::fs::write(file, bytes).unwrap();
    }
    let session = self::session(&data).await;
    create(&session, &options).await;
    let config = RunConfig {
        internals: RunInternals {
            scope: RunScope::DeadLetters(Arc::new(told)),
            ..RunInternals::default()
        },
        ..RunConfig::default()
    };
    let (again, error) = run(&session, config).await;
    assert_eq!(error, None);
    let expected: Vec<&String> = order.iter().filter(|path| bad.contains(*path)).collect();
    let found = paths(&again);
    assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    let pixels = |batches: &[Batch]| -> Vec<(String, arrow::array::ArrayRef)> {
        let rows = batches.iter().flat_map(|batch| {
            let names = paths(std::slice::from_ref(batch));
            let column = Arc::clone(batch.batch.column(1));
            names
                .into_iter()
                .enumerate()
                .map(move |(i, name)| (name, column.slice(i, 1)))
        });
        rows.filter(|(name, _)| bad.contains(name)).collect()
    };
    assert_eq!(pixels(&again), pixels(&whole));
}

/// Checks that each dead letter contains its input, whose checksum is that of the photo's file.
fn inputs_are_kept(dead: &Path, data: &Path) {
    for file in std::fs::read_dir(dead).unwrap() {
        let file = std::fs::File::open(file.unwrap().path()).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            let texts = |name: &str| {
                batch
                    .column_by_name(name)
                    .unwrap()
                    .as_string::<i32>()
                    .clone()
            };
            let (files, sums, outcomes) = (texts("file"), texts("sha256"), texts("outcome"));
            let inputs = batch.column_by_name("input").unwrap().as_binary::<i32>();
            for row in 0..batch.num_rows() {
                let bytes = std::fs::read(data.join(files.value(row))).unwrap();
                assert_eq!(inputs.value(row), bytes);
                let sum = Sha256::digest(&bytes);
                let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(sums.value(row), sum);
                assert_eq!(outcomes.value(row), "skipped");
            }
        }
    }
}

/// Creates a session over numbers. A division fails for every tenth row, beginning with row 9.
async fn numbers(folder: &Path, clauses: &str) -> Session {
    let lines: String = (0..50)
        .map(|id| format!("{{\"id\": {id}, \"ids\": [{id}, {id}]}}\n"))
        .collect();
    let file = folder.join("t.json");
    std::fs::write(&file, lines).unwrap();
    let session = Session::new();
    let sql = format!(
        "CREATE PIPELINE p AS SELECT id, 1 / (id % 10 - 9) AS x, ids FROM json('{}') {clauses}
         OPTIONS (on_error = 'skip', error_budget = 5, dead_letters = '{}')",
        file.display(),
        folder.join("dead").display()
    );
    session.execute(&sql).await.unwrap();
    session
}

/// A failed row is reported once, even if the row is repeated to fill a batch or to give a batch to
/// a rank without one.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_row_is_reported_once() {
    for clauses in ["BATCH 49 PAD REMAINDER", "BATCH 7"] {
        let folder = tempfile::tempdir().unwrap();
        let session = numbers(folder.path(), clauses).await;
        let mut run = session.run("p", RunConfig::default()).await.unwrap();
        while let Some(batch) = run.next().await {
            batch.unwrap();
        }
        assert_eq!(run.stats().skipped, 5, "{clauses}");
        let told = dead_letters::read(&folder.path().join("dead")).unwrap();
        let rows: Vec<u64> = told.iter().map(|letter| letter.row).collect();
        assert_eq!(rows, [9, 19, 29, 39, 49], "{clauses}");
    }
}

/// A run with a batch limit reports the failures in the batches that it delivered, but no failures
/// in later batches.
#[tokio::test(flavor = "multi_thread")]
async fn a_limited_run_reports_the_failures_in_its_batches() {
    let folder = tempfile::tempdir().unwrap();
    let session = numbers(folder.path(), "BATCH 10").await;
    let config = RunConfig {
        limit_batches: Some(3),
        ..RunConfig::default()
    };
    let (batches, error) = run(&session, config).await;
    assert_eq!((batches.len(), error), (3, None));
    let told = dead_letters::read(&folder.path().join("dead")).unwrap();
    let rows: Vec<u64> = told.iter().map(|letter| letter.row).collect();
    assert_eq!(rows, [9, 19, 29]);
}

/// Queries over a pipeline, and EXPLAIN ANALYZE of a pipeline, write no dead letters.
#[tokio::test(flavor = "multi_thread")]
async fn previews_write_no_dead_letters() {
    let folder = tempfile::tempdir().unwrap();
    let session = numbers(folder.path(), "BATCH 10").await;
    for sql in [
        "SELECT id FROM p",
        "SELECT count(x) FROM p",
        "EXPLAIN ANALYZE PIPELINE p",
    ] {
        session.execute(sql).await.unwrap();
    }
    assert!(!folder.path().join("dead").exists());
    let (_, error) = run(&session, RunConfig::default()).await;
    assert_eq!(error, None);
    assert!(folder.path().join("dead").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_packs_are_replayed_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let session = numbers(folder.path(), "PACK ids INTO 6 BATCH 2").await;
    let (_, error) = run(&session, RunConfig::default()).await;
    assert_eq!(error, None);
    let told = dead_letters::read(&folder.path().join("dead")).unwrap();
    assert_eq!(told.len(), 5);
    // Mends the data: no row divides by zero any more.
    let file = folder.path().join("t.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("9,", "8,")).unwrap();
    let session = Session::new();
    let sql = format!(
        "CREATE PIPELINE p AS SELECT id, 1 / (id % 10 - 9) AS x, ids FROM json('{}') PACK ids INTO 6 BATCH 2
         OPTIONS (on_error = 'skip', error_budget = 5, dead_letters = '{}')",
        file.display(),
        folder.path().join("dead").display()
    );
    session.execute(&sql).await.unwrap();
    let config = RunConfig {
        internals: RunInternals {
            scope: RunScope::DeadLetters(Arc::new(told)),
            ..RunInternals::default()
        },
        ..RunConfig::default()
    };
    let (again, error) = run(&session, config).await;
    assert_eq!(error, None);
    let ids = again.iter().flat_map(|batch| {
        let ids = batch.batch.column(0).as_primitive::<Int64Type>().values();
        ids.to_vec()
    });
    assert_eq!(ids.collect::<Vec<_>>(), [8, 18, 28, 38, 48]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_need_a_local_folder() {
    let folder = tempfile::tempdir().unwrap();
    let session = numbers(folder.path(), "BATCH 10").await;
    let sql = "CREATE OR REPLACE PIPELINE p AS SELECT 1 AS x FROM json('t.json') OPTIONS (dead_letters = 's3://b/x')";
    let sql = sql.replace(
        "t.json",
        &folder.path().join("t.json").display().to_string(),
    );
    session.execute(&sql).await.unwrap();
    let error = session.run("p", RunConfig::default()).await.unwrap_err();
    assert!(
        error.to_string().contains("a folder of this machine"),
        "{error}"
    );
}
