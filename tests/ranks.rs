//! Eight ranks read files of different sizes, with a filter on decoded images. Under all policies
//! of `equal_steps`, the ranks take the same number of steps, their batches together are the
//! stream, and no rank decodes the rows of another rank.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use arrow::array::{Array, AsArray, RecordBatch};
use common::photos;
use forebay::{BatchName, RunConfig, Session};
use forebay_runtime::stream::digest::Digest;

const WORLD: u64 = 8;

async fn session(policy: &str) -> (tempfile::TempDir, Session) {
    let folder = tempfile::tempdir().unwrap();
    let (data, cache) = (folder.path().join("photos"), folder.path().join("cache"));
    photos(&data, 331, 5);
    let session = Session::new();
    let sql = format!(
        "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION '{}';
         CREATE PIPELINE p AS
         SELECT path, random_hflip(resize(decode_image(image), 8, 8)) AS pixels FROM photos
         WHERE image_width(image) % 3 <> 1
         SHUFFLE WITHIN 50 ROWS SEED 3 BATCH 5 REPEAT 2 CACHE OFF
         OPTIONS (equal_steps = '{policy}', cache_dir = '{}')",
        data.display(),
        cache.display()
    );
    session.execute(&sql).await.unwrap();
    (folder, session)
}

async fn batches(session: &Session, rank: u64, world: u64) -> Vec<(u64, RecordBatch)> {
    let config = RunConfig {
        rank,
        world,
        ..RunConfig::default()
    };
    let mut run = session.run("p", config).await.unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = run.next().await {
        let batch = batch.unwrap();
        batches.push((batch.epoch, batch.batch));
    }
    batches
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_take_equal_steps_under_every_policy() {
    for policy in ["count", "drop", "pad"] {
        let (_folder, session) = session(policy).await;
        let whole = batches(&session, 0, 1).await;
        let mut ranks = Vec::new();
        for rank in 0..WORLD {
            ranks.push(batches(&session, rank, WORLD).await);
        }
        let steps: Vec<usize> = ranks.iter().map(Vec::len).collect();
        assert!(steps.iter().all(|n| *n == steps[0]), "{policy}: {steps:?}");
        let of_epoch = |batches: &[(u64, RecordBatch)], of: u64| -> Vec<RecordBatch> {
            let batches = batches.iter().filter(|(epoch, _)| *epoch == of);
            batches.map(|(_, batch)| batch.clone()).collect()
        };
        for epoch in 0..2 {
            let expected = of_epoch(&whole, epoch);
            let ranks: Vec<_> = ranks.iter().map(|rank| of_epoch(rank, epoch)).collect();
            let mut union = Vec::new();
            for step in 0..ranks[0].len() {
                union.extend(ranks.iter().map(|rank| rank[step].clone()));
            }
            let world = WORLD as usize;
            assert_ne!(
                expected.len() % world,
                0,
                "every rank has a batch in the last step"
            );
            match policy {
                "count" => {
                    assert_eq!(union.len(), expected.len().next_multiple_of(world));
                    assert!(union[expected.len()..].iter().all(|b| b.num_rows() == 0));
                    union.truncate(expected.len());
                    assert_eq!(union, expected);
                }
                "drop" => {
                    assert_eq!(union.len(), expected.len() / world * world);
                    assert_eq!(union, expected[..union.len()]);
                }
                _ => {
                    assert_eq!(union.len(), expected.len().next_multiple_of(world));
                    // With `equal_steps = 'pad'`, a rank without a batch repeats its previous
                    // batch.
                    for at in expected.len()..union.len() {
                        assert_eq!(union[at], union[at - world]);
                    }
                    union.truncate(expected.len());
                    assert_eq!(union, expected);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_lists_its_rows_and_can_be_recomputed() {
    let (_folder, session) = session("count").await;
    let config = RunConfig {
        rank: 3,
        world: 4,
        ..RunConfig::default()
    };
    let mut run = session.run("p", config.clone()).await.unwrap();
    let mut seen = Vec::new();
    while let Some(batch) = run.next().await {
        seen.push(batch.unwrap());
    }
    let digest = |batch: &RecordBatch| {
        let mut digest = Digest::default();
        digest.update(batch).unwrap();
        digest.finish()
    };
    for batch in seen.iter().filter(|batch| batch.batch.num_rows() > 0) {
        let by_step = BatchName::Step {
            epoch: batch.epoch,
            step: batch.step,
        };
        for name in [by_step, BatchName::Before(Box::new(batch.token()))] {
            let found = session.which("p", config.clone(), name).await.unwrap();
            assert_eq!(found.digest, digest(&batch.batch));
            assert_eq!(found.epoch, batch.epoch);
            let files: Vec<&str> = found.rows.iter().map(|row| row.file.as_str()).collect();
            let paths = batch.batch.column(0).as_string::<i32>();
            let paths: Vec<&str> = (0..paths.len()).map(|i| paths.value(i)).collect();
            assert_eq!(files, paths);
            let draws: Vec<&String> = found.draws.values().collect();
            assert_eq!(draws, ["random_hflip"]);
        }
    }
    let none = BatchName::Step {
        epoch: 0,
        step: 1_000,
    };
    let error = session.which("p", config, none).await.unwrap_err();
    assert!(error.to_string().contains("no such batch"), "{error}");
}

/// Returns the number of rows that the scans of all ranks together read in an epoch, and the number
/// of rows of the epoch.
async fn scanned(session: &Session) -> (u64, u64) {
    let (mut read, mut all) = (0, 0);
    for rank in 0..WORLD {
        let config = RunConfig {
            rank,
            world: WORLD,
            ..RunConfig::default()
        };
        let explained = session.explain("p", config, true).await.unwrap().to_json();
        all = explained["epoch_rows"].as_u64().unwrap();
        let nodes = explained["analyze"]["operators"].as_array().unwrap();
        let scans = nodes.iter().filter(|node| {
            let name = node["operator"].as_str().unwrap();
            name.starts_with("SegmentScanExec")
        });
        read += scans
            .map(|scan| scan["rows"].as_u64().unwrap())
            .sum::<u64>();
    }
    (read, all)
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_share_the_counting_and_decode_only_their_own_rows() {
    let (folder, session) = session("count").await;
    let (read, all) = scanned(&session).await;
    assert!(all > 100 && read * 100 <= all * 105, "{read} of {all}");
    // The row counts are kept after the run: the data is counted in four shares per rank, and each
    // share has a file and a lock file.
    let counts = folder.path().join("cache.counts");
    let kept = |folder: &std::path::Path| -> Vec<_> {
        let files = std::fs::read_dir(folder).unwrap();
        files.map(|file| file.unwrap().path()).collect()
    };
    let [of_pipeline] = kept(&counts).try_into().unwrap();
    let before = kept(&of_pipeline);
    assert!(before.len() > 32, "{before:?}");
    assert_eq!(scanned(&session).await, (read, all));
    assert_eq!(kept(&of_pipeline).len(), before.len());
}
