//! Caching rows never changes a stream, and cached rows are not computed again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod choice;
#[path = "../common/mod.rs"]
mod common;
mod objects;

use std::path::Path;
use std::sync::Arc;

use common::{digest, parquet, photos, table};
use forebay::{Batch, RunConfig, RunInternals, Session};

/// The result of a run: the digest of its stream, the number of rows read from the cache, and the
/// number of rows computed because the cache lacked them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outcome {
    digest: String,
    read: u64,
    computed: u64,
}

async fn batches_of(
    sql: &str,
    config: RunConfig,
) -> Result<(Vec<Batch>, Option<(u64, u64)>), String> {
    // A new session has no state of earlier runs, like another process.
    batches_in(&Session::new(), sql, config).await
}

async fn batches_in(
    session: &Session,
    sql: &str,
    config: RunConfig,
) -> Result<(Vec<Batch>, Option<(u64, u64)>), String> {
    session.execute(sql).await.map_err(|e| e.to_string())?;
    let run = common::started(session, "p", config).await;
    let mut run = run.map_err(|e| e.to_string())?;
    let mut batches = Vec::new();
    while let Some(batch) = run.next().await {
        batches.push(batch.map_err(|e| e.to_string())?);
    }
    Ok((batches, run.cached()))
}

async fn run_with(sql: &str, config: RunConfig) -> Outcome {
    run_in(&Session::new(), sql, config).await
}

async fn run_in(session: &Session, sql: &str, config: RunConfig) -> Outcome {
    let (batches, cached) = batches_in(session, sql, config).await.unwrap();
    let (read, computed) = cached.unwrap_or_default();
    Outcome {
        digest: digest(&batches),
        read,
        computed,
    }
}

async fn run(sql: &str) -> Outcome {
    run_with(sql, RunConfig::default()).await
}

/// Returns a pipeline over photos that applies the random functions `tail` to resized images.
/// `cache` is appended as its last clauses.
fn augmented(photos: &Path, tail: &str, cache: &str) -> String {
    format!(
        "CREATE PIPELINE p AS SELECT label, {tail} AS pixels
         FROM (SELECT label, resize_shortest(decode_image(image), 24) AS x FROM images('{}')) AS q
         SHUFFLE WITHIN 20 ROWS SEED 3 BATCH 8 REPEAT 3 {cache}",
        photos.display()
    )
}

fn kept(dir: &Path) -> String {
    format!(
        "CACHE AT resize_shortest OPTIONS (cache_dir = '{}', on_error = 'skip')",
        dir.display()
    )
}

const TAIL: &str = "random_crop(normalize(x, 'imagenet'), 20, 20)";
const OFF: &str = "CACHE OFF OPTIONS (on_error = 'skip')";

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_computed_in_the_first_epoch_and_read_in_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let (data, cache) = (dir.path().join("data"), dir.path().join("cache"));
    photos(&data, 60, 3);
    let plain = run(&augmented(&data, TAIL, OFF)).await;
    assert_eq!((plain.read, plain.computed), (0, 0));
    let first = run(&augmented(&data, TAIL, &kept(&cache))).await;
    assert_eq!(first.digest, plain.digest);
    assert_eq!((first.read, first.computed), (120, 60));
    // A new session, like another process, finds all rows in the cache and computes none. A
    // pipeline with other random functions after the cache point reads the same rows.
    let second = run(&augmented(&data, TAIL, &kept(&cache))).await;
    assert_eq!(second.digest, plain.digest);
    assert_eq!((second.read, second.computed), (180, 0));
    let other = "random_hflip(center_crop(x, 16, 16))";
    let third = run(&augmented(&data, other, &kept(&cache))).await;
    assert_eq!(
        third.digest,
        run(&augmented(&data, other, OFF)).await.digest
    );
    assert_eq!((third.read, third.computed), (180, 0));
    // The cached stream is the same with several ranks, several threads, and a low memory limit.
    for (threads, world, rank) in [(1, 1, 0), (2, 2, 0), (2, 2, 1)] {
        let config = RunConfig {
            threads: Some(threads),
            world,
            rank,
            internals: RunInternals {
                segment_rows: Some(7),
                ..RunInternals::default()
            },
            ..RunConfig::default()
        };
        let with = run_with(&augmented(&data, TAIL, &kept(&cache)), config.clone()).await;
        let without = run_with(&augmented(&data, TAIL, OFF), config).await;
        assert_eq!(with.digest, without.digest);
        assert_eq!(with.computed, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prefixes_that_differ_in_a_constant_that_explain_hides_share_no_rows() {
    let dir = tempfile::tempdir().unwrap();
    let (data, cache) = (dir.path().join("data"), dir.path().join("cache"));
    photos(&data, 12, 2);
    let cropped = |at: u32, cache: &str| {
        format!(
            "CREATE PIPELINE p AS SELECT random_hflip(crop(decode_image(image), {at}, {at}, 16, 16)) AS x
             FROM images('{}') BATCH 4 {cache}",
            data.display()
        )
    };
    let kept = format!("CACHE AT crop OPTIONS (cache_dir = '{}')", cache.display());
    for at in [0, 4] {
        let with = run(&cropped(at, &kept)).await;
        assert_eq!((with.read, with.computed), (0, 12));
        assert_eq!(with.digest, run(&cropped(at, "")).await.digest);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_alone_is_computed_again() {
    let dir = tempfile::tempdir().unwrap();
    let (data, cache) = (dir.path().join("data"), dir.path().join("cache"));
    photos(&data, 30, 3);
    run(&augmented(&data, TAIL, &kept(&cache))).await;
    let (from, to) = (data.join("class0/0003.jpg"), data.join("class1/0004.jpg"));
    std::fs::copy(from, to).unwrap();
    let after = run(&augmented(&data, TAIL, &kept(&cache))).await;
    assert_eq!(after.digest, run(&augmented(&data, TAIL, OFF)).await.digest);
    assert_eq!((after.read, after.computed), (89, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rows_are_not_cached_and_fail_in_every_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let (data, cache) = (dir.path().join("data"), dir.path().join("cache"));
    photos(&data, 20, 2);
    std::fs::write(data.join("class0/broken.jpg"), [0xff, 0xd8, 0xff]).unwrap();
    let plain = run(&augmented(&data, TAIL, OFF)).await;
    for computed in [20 + 3, 3] {
        let cached = run(&augmented(&data, TAIL, &kept(&cache))).await;
        assert_eq!(cached.digest, plain.digest);
        assert_eq!(cached.computed, computed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_tables_and_the_drops_of_a_filter_are_cached() {
    let dir = tempfile::tempdir().unwrap();
    let (file, cache) = (dir.path().join("t/t.parquet"), dir.path().join("cache"));
    parquet(&file, &table(500), 40);
    let sql = |shuffle: &str, cache: &str| {
        format!(
            "CREATE PIPELINE p AS SELECT id, upper(name) AS big, x + random_uniform() AS noisy
             FROM parquet('{}') WHERE id % 3 <> 1 AND name IS NOT NULL
             {shuffle} BATCH 32 REPEAT 2 {cache}",
            file.display()
        )
    };
    for shuffle in ["", "SHUFFLE WITHIN 100 ROWS", "SHUFFLE GLOBALLY"] {
        let plain = run(&sql(shuffle, "")).await;
        let dir = cache.join(shuffle.replace(' ', "-"));
        let keep = format!("CACHE AT upper OPTIONS (cache_dir = '{}')", dir.display());
        let first = run(&sql(shuffle, &keep)).await;
        assert_eq!(first.digest, plain.digest, "{shuffle}");
        let second = run(&sql(shuffle, &keep)).await;
        assert_eq!(second.digest, plain.digest, "{shuffle}");
        assert_eq!(second.computed, 0, "{shuffle}");
        assert!(second.read > 0, "{shuffle}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unions_are_cached_by_their_inputs() {
    let dir = tempfile::tempdir().unwrap();
    let (file, cache) = (dir.path().join("t/t.parquet"), dir.path().join("cache"));
    parquet(&file, &table(200), 40);
    let sql = |cache: &str| {
        format!(
            "CREATE PIPELINE p AS SELECT upper(name) AS name, id + random_int(0, 9) AS id FROM (
               SELECT id, name FROM parquet('{0}') WHERE id < 50
               UNION ALL SELECT id + 1000, name FROM parquet('{0}') WHERE id > 100) AS q
             SHUFFLE WITHIN 64 ROWS BATCH 16 REPEAT 2 {cache}",
            file.display()
        )
    };
    let keep = format!("CACHE AT upper OPTIONS (cache_dir = '{}')", cache.display());
    let plain = run(&sql("")).await;
    for _ in 0..2 {
        assert_eq!(run(&sql(&keep)).await.digest, plain.digest);
    }
    assert_eq!(run(&sql(&keep)).await.computed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn draws_are_frozen_only_if_the_user_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (data, cache) = (dir.path().join("data"), dir.path().join("cache"));
    photos(&data, 24, 2);
    let at = |clause: &str| {
        let options = format!(
            "OPTIONS (cache_dir = '{}', on_error = 'skip')",
            cache.display()
        );
        augmented(&data, TAIL, &format!("{clause} {options}"))
    };
    let error = batches_of(&at("CACHE AT random_crop"), RunConfig::default()).await;
    let error = error.unwrap_err();
    assert!(error.contains("it would freeze the draws of"), "{error}");
    assert!(error.contains("random_crop"), "{error}");
    assert!(error.contains("FREEZING RANDOMNESS"), "{error}");
    let frozen = at("CACHE AT random_crop FREEZING RANDOMNESS");
    let (batches, _) = batches_of(&frozen, RunConfig::default()).await.unwrap();
    let (again, cached) = batches_of(&frozen, RunConfig::default()).await.unwrap();
    assert_eq!(digest(&batches), digest(&again));
    assert_eq!(cached, Some((72, 0)));
    // Without the cache, the draws are the same, since frozen draws depend on the pipeline alone.
    std::fs::remove_dir_all(&cache).unwrap();
    let other_epoch = RunConfig {
        first_epoch: 1,
        epochs: Some(1),
        ..RunConfig::default()
    };
    let (later, _) = batches_of(&frozen, other_epoch.clone()).await.unwrap();
    let of_epoch: Vec<Batch> = batches.into_iter().filter(|b| b.epoch == 1).collect();
    assert_eq!(digest(&later), digest(&of_epoch));
    let (free, _) = batches_of(&augmented(&data, TAIL, OFF), other_epoch)
        .await
        .unwrap();
    assert_ne!(digest(&later), digest(&free));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_or_read_only_store_changes_no_stream() {
    let dir = tempfile::tempdir().unwrap();
    let (data, cache) = (dir.path().join("data"), dir.path().join("cache"));
    photos(&data, 24, 2);
    let plain = run(&augmented(&data, TAIL, OFF)).await;
    run(&augmented(&data, TAIL, &kept(&cache))).await;
    let mut flipped = 0;
    let mut folders = vec![cache.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let mut bytes = std::fs::read(&path).unwrap();
            if bytes.len() > 10_000 {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                std::fs::write(&path, bytes).unwrap();
                flipped += 1;
            }
        }
    }
    assert!(flipped > 0);
    let repaired = run(&augmented(&data, TAIL, &kept(&cache))).await;
    assert_eq!(repaired.digest, plain.digest);
    assert!(repaired.computed > 0);
    let sound = run(&augmented(&data, TAIL, &kept(&cache))).await;
    assert_eq!((sound.digest, sound.computed), (plain.digest.clone(), 0));
    // The path of the cache directory is that of a file.
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let error = batches_of(&augmented(&data, TAIL, &kept(&file)), RunConfig::default()).await;
    assert!(error.unwrap_err().contains("file"));
    // If CACHE AT names a cache point, a quota that is too small for its rows is an error.
    let tight = format!(
        "CACHE AT resize_shortest OPTIONS (cache_dir = '{}', cache_quota = '1 KiB', on_error = 'skip')",
        dir.path().join("tight").display()
    );
    let error = batches_of(&augmented(&data, TAIL, &tight), RunConfig::default()).await;
    assert!(
        error
            .unwrap_err()
            .contains("the cache holds at most 1024 bytes")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_at_once_leave_one_correct_entry() {
    let dir = tempfile::tempdir().unwrap();
    let (data, cache) = (dir.path().join("data"), dir.path().join("cache"));
    photos(&data, 40, 2);
    let plain = run(&augmented(&data, TAIL, OFF)).await;
    let sql = augmented(&data, TAIL, &kept(&cache));
    let (a, b) = tokio::join!(run(&sql), run(&sql));
    assert_eq!((&a.digest, &b.digest), (&plain.digest, &plain.digest));
    let after = run(&sql).await;
    assert_eq!((after.digest, after.computed), (plain.digest, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_plan_with_a_cache_gives_the_same_stream_without_one() {
    let dir = tempfile::tempdir().unwrap();
    let (data, cache) = (dir.path().join("data"), dir.path().join("cache"));
    photos(&data, 12, 2);
    let relaxed = |clauses: &str| augmented(&data, TAIL, clauses);
    let options = |dir: &Path| {
        format!(
            "OPTIONS (relax = 'statistical', cache_dir = '{}')",
            dir.display()
        )
    };
    let with = relaxed(&format!("CACHE AT resize_shortest {}", options(&cache)));
    let session = Session::new();
    session.execute(&with).await.unwrap();
    let saved = session.plan("p", RunConfig::default()).await.unwrap();
    let config = RunConfig {
        plan: Some(Arc::new(saved)),
        ..RunConfig::default()
    };
    let first = run_with(&with, config.clone()).await;
    assert_eq!((first.read, first.computed), (24, 12));
    let off = relaxed(&format!("CACHE OFF {}", options(&dir.path().join("none"))));
    let none = relaxed("OPTIONS (relax = 'statistical')");
    for sql in [off, none] {
        let without = run_with(&sql, config.clone()).await;
        assert_eq!(
            (without.digest, without.read, without.computed),
            (first.digest.clone(), 0, 0)
        );
    }
    assert!(!dir.path().join("none").exists());
}
