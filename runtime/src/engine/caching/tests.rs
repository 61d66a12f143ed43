//! A run measures the store that it caches in, and the next plan goes by what was measured.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use forebay_planner::catalog::Catalog;
use forebay_planner::pipeline::Pipeline;
use forebay_planner::sql::{Statement, parse};
use object_store::memory::InMemory;

use super::*;
use crate::cache::testing::throttled;
use crate::digest::Digest;
use crate::engine::{Opened, Sample};
use crate::source::FileResolver;

const ROWS: u64 = 1000;
const EPOCHS: u64 = 10;

/// A disk that carries so many bytes a second, through a token bucket. Its clock is moved by what waits for it.
fn disk(bytes_per_second: u64) -> Stores {
    let (disk, clock) = throttled(Arc::new(InMemory::new()), bytes_per_second);
    let stores = Stores::on(clock);
    stores.register("disk://throttled", disk).unwrap();
    stores
}

fn config() -> RunConfig {
    RunConfig {
        threads: Some(1),
        ..RunConfig::default()
    }
}

/// A pipeline over a file that is dear to parse.
async fn pipeline(folder: &Path) -> Pipeline {
    let file = folder.join("rows.json");
    let mut lines = String::new();
    for id in 0..ROWS {
        let word = id * 7919 % 1009;
        writeln!(
            lines,
            r#"{{"id": {id}, "text": "some words about {word}"}}"#
        )
        .unwrap();
    }
    std::fs::write(&file, lines).unwrap();
    let sql = format!(
        "SELECT upper(text) AS text, id + random_int(0, 9) AS id FROM json('{}')
         SHUFFLE WITHIN 100 ROWS BATCH 50 REPEAT {EPOCHS}
         CACHE AUTO OPTIONS (cache_dir = 'disk://throttled/rows')",
        file.display()
    );
    let catalog = Catalog::new(forebay_udfs::functions(), Arc::new(FileResolver));
    match parse(&sql).unwrap().pop() {
        Some(Statement::Query(query)) => catalog.plan_query(&query).await.unwrap(),
        other => panic!("{other:?}"),
    }
}

fn planned(pipeline: &Pipeline, machine: &Machine) -> Compiled {
    Compiled::on(machine, &pipeline.plan, pipeline.clauses.clone()).unwrap()
}

fn caches(compiled: &Compiled) -> bool {
    compiled.report.as_ref().unwrap().cached
}

/// The digest of a run, and the rows that it read from the cache and computed.
async fn run(compiled: &Compiled, stores: &Stores) -> (String, Option<(u64, u64)>) {
    let mut run = Opened::new(compiled, &config(), stores)
        .await
        .unwrap()
        .start();
    let mut digest = Digest::new();
    while let Some(batch) = run.next().await {
        digest.update(&batch.unwrap().batch).unwrap();
    }
    (digest.finish(), run.cached())
}

/// The least bytes a second, to about a hundredth, at which the pipeline is cached.
fn break_even(pipeline: &Pipeline, machine: &Machine) -> u64 {
    let pays = |bytes_per_second| {
        let machine = Machine {
            cache_write: Some(bytes_per_second),
            cache_read: Some(bytes_per_second),
            ..machine.clone()
        };
        caches(&planned(pipeline, &machine))
    };
    let (mut low, mut high) = (1_000, 1_000_000_000_000);
    assert!(!pays(low) && pays(high));
    while high - low > high / 100 {
        let middle = low + (high - low) / 2;
        match pays(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    high
}

#[tokio::test]
async fn a_disk_measured_to_be_below_the_break_even_is_not_cached_on_again() {
    let folder = tempfile::tempdir().unwrap();
    let pipeline = pipeline(folder.path()).await;
    let (clauses, config) = (&pipeline.clauses, config());
    let unknown = machine(clauses, &config, &disk(1)).await.unwrap();
    assert_eq!((unknown.cache_write, unknown.cache_read), (None, None));
    let sample = Sample::of(&planned(&pipeline, &unknown).chosen).await;
    let sample = Arc::new(sample);
    let profiled = |machine: Machine| Machine {
        probe: Some(Arc::clone(&sample) as _),
        ..machine
    };
    let unknown = profiled(unknown);
    let break_even = break_even(&pipeline, &unknown);
    let plain = {
        let mut pipeline = pipeline.clone();
        pipeline.clauses.cache = Some(Cache::Off);
        run(&planned(&pipeline, &unknown), &Stores::default()).await
    };
    assert_eq!(plain.1, None);

    for (bytes_per_second, pays) in [
        (break_even * 100, true),
        (break_even * 5 / 4, true),
        (break_even * 4 / 5, false),
    ] {
        let stores = disk(bytes_per_second);
        // Nothing is known of the disk: it is thought to be a usual one.
        let first = planned(&pipeline, &unknown);
        assert!(caches(&first));
        let (digest, counts) = run(&first, &stores).await;
        assert_eq!(digest, plain.0);
        assert_eq!(counts, Some((ROWS * (EPOCHS - 1), ROWS)));
        let known = machine(clauses, &config, &stores).await.unwrap();
        for measured in [known.cache_write, known.cache_read] {
            let apart = measured.unwrap().abs_diff(bytes_per_second);
            assert!(apart < bytes_per_second / 20, "{known:?}");
        }
        let second = planned(&pipeline, &profiled(known));
        assert_eq!(caches(&second), pays, "{bytes_per_second}");
        let (digest, counts) = run(&second, &stores).await;
        assert_eq!(digest, plain.0);
        assert_eq!(counts, pays.then_some((ROWS * EPOCHS, 0)));
    }
}

/// A store that was slow once, as the run before this one found it, and holds all rows of the pipeline.
#[tokio::test]
async fn one_slow_measurement_does_not_hide_a_complete_cache() {
    let folder = tempfile::tempdir().unwrap();
    let pipeline = pipeline(folder.path()).await;
    let (clauses, config) = (&pipeline.clauses, config());
    let memory = Arc::new(InMemory::new());
    let (fast, clock) = throttled(Arc::clone(&memory) as _, 1 << 40);
    let stores = Stores::on(clock);
    stores.register("disk://throttled", fast).unwrap();
    let unknown = machine(clauses, &config, &stores).await.unwrap();
    let sample = Arc::new(Sample::of(&planned(&pipeline, &unknown).chosen).await);
    let profiled = |machine: Machine| Machine {
        probe: Some(Arc::clone(&sample) as _),
        ..machine
    };
    let first = planned(&pipeline, &profiled(unknown));
    assert!(caches(&first));
    let (digest, counts) = run(&first, &stores).await;
    assert_eq!(counts, Some((ROWS * (EPOCHS - 1), ROWS)));

    let crawled = r#"{"bytes": 1048576, "nanos": 1000000000000000}"#;
    let at = r#""written_ms": 1700000000000, "read_ms": 1700000000000"#;
    let slow = format!(r#"{{"written": {crawled}, "read": {crawled}, {at}}}"#);
    let place = object_store::path::Path::from("rows/bandwidth.json");
    object_store::ObjectStoreExt::put(memory.as_ref(), &place, slow.into())
        .await
        .unwrap();
    let known = machine(clauses, &config, &stores).await.unwrap();
    // Written too slowly to pay, if the rows were not there.
    let empty = Machine {
        stored: None,
        ..known.clone()
    };
    assert!(!caches(&planned(&pipeline, &profiled(empty))));
    let second = planned(&pipeline, &profiled(known));
    assert!(caches(&second));
    assert!(second.report.as_ref().unwrap().stored.is_some());
    let (again, counts) = run(&second, &stores).await;
    assert_eq!(again, digest);
    assert_eq!(counts, Some((ROWS * EPOCHS, 0)));

    // The choice is made again by what it was made by, wherever there is no such store.
    let saved = forebay_planner::saved::SavedPlan::of(&second, None).unwrap();
    let (elsewhere, differs) = saved
        .compile(&pipeline.plan, pipeline.clauses.clone())
        .unwrap();
    assert!(differs.is_none());
    assert_eq!(elsewhere.plan_hash().unwrap(), second.plan_hash().unwrap());
}
