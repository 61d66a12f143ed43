//! Tests that a run measures its cache store, and that the planner uses the measurement for the
//! next plan.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use forebay_planner::catalog::Catalog;
use forebay_planner::clauses::Clauses;
use forebay_planner::optimizer::PlanningContext;
use forebay_planner::pipeline::Pipeline;
use forebay_planner::sql::{Statement, parse};
use object_store::memory::InMemory;

use super::*;
use crate::cache::testing::throttled;
use crate::objects::ObjectStores;
use crate::run::{JobRun, RunConfig, Sample};
use crate::source::FileResolver;
use crate::stream::digest::Digest;

const ROWS: u64 = 1000;
const EPOCHS: u64 = 10;

/// Returns stores with a disk whose bandwidth a token bucket limits. Waiting for the disk advances
/// the clock of the stores.
fn disk(bytes_per_second: u64) -> Stores {
    throttled_stores(Arc::new(InMemory::new()), bytes_per_second)
}

/// As [`disk`], over `memory`.
fn throttled_stores(memory: Arc<InMemory>, bytes_per_second: u64) -> Stores {
    let (disk, clock) = throttled(memory, bytes_per_second);
    let objects = ObjectStores::default();
    objects.register("disk://throttled", disk).unwrap();
    Stores::on(objects, clock)
}

fn config() -> RunConfig {
    RunConfig {
        threads: Some(1),
        ..RunConfig::default()
    }
}

/// Returns a pipeline over a JSON file, which is expensive to parse.
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
    let catalog = Catalog::new(forebay_udfs::functions(), Arc::new(FileResolver::default()));
    match parse(&sql).unwrap().pop() {
        Some(Statement::Query(query)) => catalog.plan_query(&query).await.unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Returns the machine of the tests, with the facts about the cache in `stores`.
async fn machine_with(clauses: &Clauses, stores: &Stores) -> PlanningContext {
    let dir = planned_cache(clauses).unwrap();
    let facts = CacheFacts::of(dir, stores).await.unwrap();
    machine(clauses, config().threads, facts)
}

fn planned(pipeline: &Pipeline, machine: &PlanningContext) -> Compiled {
    Compiled::on(machine, &pipeline.plan, pipeline.clauses.clone()).unwrap()
}

fn caches(compiled: &Compiled) -> bool {
    compiled.report.as_ref().unwrap().cached
}

/// Runs a pipeline. Returns the digest of its batches, the number of rows read from the cache, and
/// the number of rows computed.
async fn run(compiled: &Compiled, stores: &Stores) -> (String, Option<(u64, u64)>) {
    let mut run = JobRun::open(compiled, &config(), stores)
        .await
        .unwrap()
        .start();
    let mut digest = Digest::default();
    while let Some(batch) = run.next().await {
        digest.update(&batch.unwrap().batch).unwrap();
    }
    (digest.finish(), run.cached())
}

/// Returns the lowest bandwidth, within one percent, at which the planner caches the pipeline.
fn break_even(pipeline: &Pipeline, machine: &PlanningContext) -> u64 {
    let pays = |bytes_per_second| {
        let machine = PlanningContext {
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
        if pays(middle) {
            high = middle
        } else {
            low = middle
        }
    }
    high
}

#[tokio::test]
async fn a_disk_measured_below_the_break_even_is_not_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let pipeline = pipeline(folder.path()).await;
    let clauses = &pipeline.clauses;
    let unknown = machine_with(clauses, &disk(1)).await;
    assert_eq!((unknown.cache_write, unknown.cache_read), (None, None));
    let sample = Sample::of(&planned(&pipeline, &unknown).chosen).await;
    let sample = Arc::new(sample);
    let profiled = |machine: PlanningContext| PlanningContext {
        probe: Some(Arc::clone(&sample) as _),
        ..machine
    };
    let unknown = profiled(unknown);
    let break_even = break_even(&pipeline, &unknown);
    let plain = {
        let mut pipeline = pipeline.clone();
        pipeline.clauses.cache = Some(CacheClause::Off);
        run(&planned(&pipeline, &unknown), &Stores::default()).await
    };
    assert_eq!(plain.1, None);

    for (bytes_per_second, pays) in [
        (break_even * 100, true),
        (break_even * 5 / 4, true),
        (break_even * 4 / 5, false),
    ] {
        let stores = disk(bytes_per_second);
        // Without measurements, the planner assumes an ordinary disk.
        let first = planned(&pipeline, &unknown);
        assert!(caches(&first));
        let (digest, counts) = run(&first, &stores).await;
        assert_eq!(digest, plain.0);
        assert_eq!(counts, Some((ROWS * (EPOCHS - 1), ROWS)));
        let known = machine_with(clauses, &stores).await;
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

/// The store was slow during one earlier run, and holds all rows of the pipeline.
#[tokio::test]
async fn one_slow_measurement_does_not_hide_a_complete_cache() {
    let folder = tempfile::tempdir().unwrap();
    let pipeline = pipeline(folder.path()).await;
    let clauses = &pipeline.clauses;
    let memory = Arc::new(InMemory::new());
    let stores = throttled_stores(Arc::clone(&memory), 1 << 40);
    let unknown = machine_with(clauses, &stores).await;
    let sample = Arc::new(Sample::of(&planned(&pipeline, &unknown).chosen).await);
    let profiled = |machine: PlanningContext| PlanningContext {
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
    let known = machine_with(clauses, &stores).await;
    // If the rows were not stored already, writing them would be too slow to pay off.
    let empty = PlanningContext {
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

    // A saved plan reproduces the choice from its recorded inputs, on a machine without the store.
    let saved = forebay_planner::saved::SavedPlan::of(&second, None).unwrap();
    let (elsewhere, differs) = saved
        .compile(&pipeline.plan, pipeline.clauses.clone())
        .unwrap();
    assert!(differs.is_none());
    assert_eq!(elsewhere.plan_hash().unwrap(), second.plan_hash().unwrap());
}
