//! Rows that fail: a hundred damaged photos among two thousand, under every policy, told in a table of dead
//! letters, counted against a budget, and run again once they are mended.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use common::photos;
use forebay::{Batch, Only, RunConfig, Session, letters};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

const PHOTOS: u32 = 2_000;
const DAMAGED: u32 = 100;

/// Damages one photo of twenty by cutting its file, and answers the files with what they were.
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
async fn every_policy_does_with_damaged_photos_what_it_says() {
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

    // fail: the first one in stream order is named.
    create(&session, "on_error = 'fail'").await;
    let (_, error) = run(&session, RunConfig::default()).await;
    let first = order.iter().find(|path| bad.contains(*path)).unwrap();
    let error = error.unwrap();
    assert!(
        error.contains(&format!("{first}, row 0: decode_image")),
        "{error}"
    );

    // skip: the others, in unchanged order and batches, and a letter for each.
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
    let told = letters::read(&dead).unwrap();
    let files: BTreeSet<String> = told.iter().map(|letter| letter.file.clone()).collect();
    assert_eq!((told.len(), files), (DAMAGED as usize, bad.clone()));
    inputs_are_kept(&dead, &data);

    // replace: full batches.
    create(&session, "on_error = 'replace'").await;
    let (replaced, error) = run(&session, RunConfig::default()).await;
    assert_eq!(error, None);
    let sizes = |batches: &[Batch]| -> Vec<usize> {
        batches.iter().map(|batch| batch.batch.num_rows()).collect()
    };
    assert_eq!(sizes(&replaced), sizes(&whole));

    // A budget of one per cent is spent by the 21st.
    create(&session, "on_error = 'skip', error_budget = '1 %'").await;
    let (_, error) = run(&session, RunConfig::default()).await;
    let error = error.unwrap();
    assert!(error.starts_with("21 of the "), "{error}");
    assert!(error.contains("allows 20 of 2000"), "{error}");
    create(&session, "on_error = 'skip', error_budget = 100").await;
    assert_eq!(run(&session, RunConfig::default()).await.1, None);

    // Mended, they are run again, and come out as they would have come out at first.
    for (file, bytes) in &damaged {
        std::fs::write(file, bytes).unwrap();
    }
    let session = self::session(&data).await;
    create(&session, &options).await;
    let config = RunConfig {
        only: Only::Letters(Arc::new(told)),
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

/// Each letter has its input, whose checksum is that of the file.
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
                assert_eq!(sums.value(row).len(), 64);
                assert_eq!(outcomes.value(row), "skipped");
            }
        }
    }
}
