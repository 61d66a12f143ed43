//! Behaviours of tf.data service that hold on a cluster of Ballista. The number in a test's name is
//! the line of the table in `docs/service.md` that it belongs to.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/draw.rs"]
mod draw;
mod harness;
#[path = "../common/process.rs"]
mod process;
mod processes;
mod proxy;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{digest, photos};
use forebay::builder::{call, col, lit, parquet};
use forebay::forebay_cluster::ballista::WorkerOptions;
use forebay::{Pipeline, RunConfig, Session, Token};
use harness::{Both, ROWS, ServiceCluster, define, ids, rest, take, write_table};
use proxy::Proxy;

/// Room for results that is so small that a stream is computed piece by piece.
const SMALL: u64 = 64 << 10;
const LARGE: u64 = 64 << 20;

fn rank(rank: u64, world: u64) -> RunConfig {
    RunConfig {
        rank,
        world,
        ..RunConfig::default()
    }
}

fn all_rows() -> Vec<i64> {
    (0..ROWS).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn line_02_every_row_arrives_once() {
    let folder = tempfile::tempdir().unwrap();
    write_table(folder.path());
    let cluster = ServiceCluster::start(3).await;
    let session = cluster.session(SMALL);
    define(
        &session,
        folder.path(),
        "id",
        "SHUFFLE WITHIN 200 ROWS SEED 1 BATCH 32",
    )
    .await;
    let mut run = session.run("p", RunConfig::default()).await.unwrap();
    let mut found = ids(&rest(&mut run).await);
    assert_ne!(found, all_rows());
    found.sort_unstable();
    assert_eq!(found, all_rows());
}

/// tf.data service loses the rows of a lost worker (lines 3 and 4).
#[tokio::test(flavor = "multi_thread")]
async fn line_04_the_rows_of_a_lost_worker_are_computed_again() {
    let folder = tempfile::tempdir().unwrap();
    write_table(folder.path());
    let mut cluster = ServiceCluster::start(3).await;
    let clauses = "SHUFFLE WITHIN 200 ROWS SEED 1 BATCH 32";
    let both = Both::of(cluster.session(SMALL), folder.path(), "*", clauses).await;
    let mut run = both.there.run("p", RunConfig::default()).await.unwrap();
    let mut batches = take(&mut run, 20).await;
    // The connections of a worker that is dropped break in the middle of its leases.
    drop(cluster.workers.pop());
    batches.extend(take(&mut run, 20).await);
    drop(cluster.workers.pop());
    batches.extend(rest(&mut run).await);
    assert_eq!(digest(&batches), both.expected(RunConfig::default()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn line_10_ranks_split_one_stream() {
    let folder = tempfile::tempdir().unwrap();
    write_table(folder.path());
    let cluster = ServiceCluster::start(2).await;
    let clauses = "SHUFFLE WITHIN 100 ROWS SEED 1 BATCH 7";
    let both = Both::of(cluster.session(SMALL), folder.path(), "id", clauses).await;
    let mut first = both.there.run("p", rank(0, 2)).await.unwrap();
    let mut second = both.there.run("p", rank(1, 2)).await.unwrap();
    let (first, second) = tokio::join!(rest(&mut first), rest(&mut second));
    assert_eq!(digest(&first), both.expected(rank(0, 2)).await);
    assert_eq!(digest(&second), both.expected(rank(1, 2)).await);
    let mut found = [ids(&first), ids(&second)].concat();
    found.sort_unstable();
    assert_eq!(found, all_rows());
}

#[tokio::test(flavor = "multi_thread")]
async fn line_12_each_epoch_has_every_row_for_several_ranks() {
    let folder = tempfile::tempdir().unwrap();
    write_table(folder.path());
    let cluster = ServiceCluster::start(2).await;
    let session = cluster.session(LARGE);
    let clauses = "SHUFFLE WITHIN 100 ROWS SEED 1 BATCH 30 REPEAT 3";
    define(&session, folder.path(), "id", clauses).await;
    let mut found = Vec::new();
    for of in 0..2 {
        let mut run = session.run("p", rank(of, 2)).await.unwrap();
        found.extend(ids(&rest(&mut run).await));
    }
    found.sort_unstable();
    let thrice: Vec<i64> = (0..ROWS).flat_map(|id| [id; 3]).collect();
    assert_eq!(found, thrice);
}

/// All ranks have rows of the same bucket in each step if they share each batch.
#[tokio::test(flavor = "multi_thread")]
async fn line_18_ranks_have_the_same_bucket_in_each_step() {
    let folder = tempfile::tempdir().unwrap();
    write_table(folder.path());
    let cluster = ServiceCluster::start(2).await;
    let session = cluster.session(LARGE);
    let clauses = "SHUFFLE WITHIN 100 ROWS SEED 1 BUCKET BY d BOUNDARIES (4, 8) BATCH 8 GLOBAL";
    define(&session, folder.path(), "id, d", clauses).await;
    let mut buckets = Vec::new();
    for of in 0..2 {
        use arrow::array::AsArray;
        let mut run = session.run("p", rank(of, 2)).await.unwrap();
        let batches = rest(&mut run).await;
        let bucket = |batch: &forebay::Batch| {
            let column = batch.batch.column_by_name("d").unwrap();
            let values = column
                .as_primitive::<arrow::datatypes::Int64Type>()
                .values();
            let mut buckets: Vec<i64> = values.iter().map(|d| d / 4 - d / 12).collect();
            buckets.dedup();
            buckets
        };
        buckets.push(batches.iter().map(bucket).collect::<Vec<_>>());
    }
    assert!(buckets[0].len() > 500);
    for (first, second) in buckets[0].iter().zip(&buckets[1]) {
        assert!(first.len() <= 1, "{first:?}");
        let is_same = first == second || first.is_empty() || second.is_empty();
        assert!(is_same, "{first:?} {second:?}");
    }
}

/// Nothing is lost while the scheduler is away, and a new one needs no journal (lines 27 to 31).
#[tokio::test(flavor = "multi_thread")]
async fn line_28_the_stream_goes_on_after_a_new_scheduler_starts() {
    let folder = tempfile::tempdir().unwrap();
    write_table(folder.path());
    let mut cluster = ServiceCluster::start(2).await;
    let clauses = "SHUFFLE WITHIN 200 ROWS SEED 1 BATCH 32";
    let both = Both::of(cluster.session(SMALL), folder.path(), "*", clauses).await;
    let mut run = both.there.run("p", RunConfig::default()).await.unwrap();
    let mut batches = take(&mut run, 30).await;
    cluster.stop_scheduler().await;
    cluster.start_scheduler().await;
    batches.extend(rest(&mut run).await);
    assert_eq!(digest(&batches), both.expected(RunConfig::default()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn line_33_client_and_workers_may_start_before_the_scheduler() {
    let folder = tempfile::tempdir().unwrap();
    write_table(folder.path());
    let mut cluster = ServiceCluster::start(0).await;
    cluster.stop_scheduler().await;
    let session = cluster.session(SMALL);
    let client = async {
        define(&session, folder.path(), "id", "BATCH 100").await;
        let mut run = session.run("p", RunConfig::default()).await.unwrap();
        ids(&rest(&mut run).await)
    };
    let servers = async {
        cluster.join().await;
        cluster.start_scheduler().await;
    };
    let (found, ()) = tokio::join!(client, servers);
    assert_eq!(found, all_rows());
}

#[tokio::test(flavor = "multi_thread")]
async fn line_34_workers_join_while_a_stream_runs() {
    let folder = tempfile::tempdir().unwrap();
    write_table(folder.path());
    let mut cluster = ServiceCluster::start(1).await;
    let clauses = "SHUFFLE WITHIN 200 ROWS SEED 1 BATCH 32";
    let both = Both::of(cluster.session(SMALL), folder.path(), "*", clauses).await;
    let mut run = both.there.run("p", RunConfig::default()).await.unwrap();
    let mut batches = take(&mut run, 10).await;
    cluster.join().await;
    cluster.join().await;
    cluster.wait_for(3).await;
    batches.extend(take(&mut run, 30).await);
    // The worker that the stream began with leaves.
    cluster.workers.remove(0).stop().await;
    batches.extend(rest(&mut run).await);
    assert_eq!(digest(&batches), both.expected(RunConfig::default()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn line_35_one_of_five_workers_suffices() {
    let folder = tempfile::tempdir().unwrap();
    write_table(folder.path());
    let mut cluster = ServiceCluster::start(5).await;
    let clauses = "SHUFFLE WITHIN 200 ROWS SEED 1 BATCH 32";
    let both = Both::of(cluster.session(1), folder.path(), "*", clauses).await;
    let mut run = both.there.run("p", RunConfig::default()).await.unwrap();
    let mut batches = take(&mut run, 5).await;
    while cluster.workers.len() > 1 {
        drop(cluster.workers.pop());
    }
    batches.extend(rest(&mut run).await);
    assert_eq!(digest(&batches), both.expected(RunConfig::default()).await);
}

/// The connections of the client and of two workers to the scheduler break and stall.
#[tokio::test(flavor = "multi_thread")]
async fn line_36_broken_and_silent_connections_do_not_end_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    write_table(folder.path());
    let mut cluster = ServiceCluster::start(0).await;
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut proxies = Vec::new();
    for _ in 0..3 {
        let delay = Duration::from_millis(1);
        proxies.push(Proxy::start(any, cluster.address, delay).await);
    }
    for proxy in &proxies[1..] {
        let options = WorkerOptions::new(proxy.address.to_string(), 2);
        cluster.add_worker(options).await;
    }
    cluster.wait_for(2).await;
    let clauses = "SHUFFLE WITHIN 200 ROWS SEED 1 BATCH 32";
    let session = cluster.session_at(proxies[0].address, SMALL);
    let both = Both::of(session, folder.path(), "*", clauses).await;
    let mut run = both.there.run("p", RunConfig::default()).await.unwrap();
    let mut batches = take(&mut run, 10).await;
    for proxy in &proxies {
        proxy.cut();
        batches.extend(take(&mut run, 10).await);
    }
    proxies.iter().for_each(Proxy::cut);
    batches.extend(take(&mut run, 10).await);
    // A lease whose end the scheduler does not hear of is issued again, to the other worker.
    proxies[1].stall();
    batches.extend(take(&mut run, 40).await);
    proxies[1].go_on();
    // Silence ends when the connection does.
    proxies[0].stall();
    proxies[0].cut();
    batches.extend(rest(&mut run).await);
    assert_eq!(digest(&batches), both.expected(RunConfig::default()).await);
}

/// Results that a client does not fetch in time are dropped by the worker, and computed again when
/// the client goes on.
#[tokio::test(flavor = "multi_thread")]
async fn line_38_an_idle_client_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    write_table(folder.path());
    let cluster = ServiceCluster::start(1).await;
    let both = Both::of(cluster.session(SMALL), folder.path(), "*", "BATCH 32").await;
    let mut idle = both.there.run("p", RunConfig::default()).await.unwrap();
    let mut batches = take(&mut idle, 3).await;
    // Other clients come and go meanwhile.
    for _ in 0..3 {
        let mut other = both.there.run("p", RunConfig::default()).await.unwrap();
        assert_eq!(
            digest(&rest(&mut other).await),
            both.expected(RunConfig::default()).await
        );
    }
    batches.extend(rest(&mut idle).await);
    assert_eq!(digest(&batches), both.expected(RunConfig::default()).await);
}

/// An SQL text is at most 1 MB long, so the plan is built by calls.
#[tokio::test(flavor = "multi_thread")]
async fn line_45_a_plan_of_8_mb_travels() {
    let folder = tempfile::tempdir().unwrap();
    write_table(folder.path());
    let cluster = ServiceCluster::start(1).await;
    let path = folder.path().join("t.parquet");
    let (here, there) = (Session::new(), cluster.session(LARGE));
    let mut digests = Vec::new();
    for session in [here, there] {
        // A column keeps the optimiser from computing the value.
        let literals = (0..8).map(|n| lit(n.to_string().repeat(1 << 20)));
        let longest = call("greatest", literals.chain([col("name")]));
        let pipeline = Pipeline::from(parquet(path.to_str().unwrap()).unwrap())
            .select([col("id"), call("length", [longest]).alias("n")])
            .take(10)
            .batch(5);
        session.register("p", pipeline).await.unwrap();
        let mut run = session.run("p", RunConfig::default()).await.unwrap();
        digests.push(digest(&rest(&mut run).await));
    }
    assert_eq!(digests[0], digests[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn line_45_a_row_of_100_mb_travels() {
    let folder = tempfile::tempdir().unwrap();
    write_table(folder.path());
    let cluster = ServiceCluster::start(1).await;
    let select = format!("id, repeat('y', {}) AS large", 100 << 20);
    let both = Both::of(
        cluster.session(LARGE),
        folder.path(),
        &select,
        "TAKE 2 BATCH 1",
    )
    .await;
    let mut run = both.there.run("p", RunConfig::default()).await.unwrap();
    assert_eq!(
        digest(&rest(&mut run).await),
        both.expected(RunConfig::default()).await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn line_50_the_stream_does_not_depend_on_the_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    write_table(folder.path());
    for workers in [1, 2, 5] {
        let cluster = ServiceCluster::start(workers).await;
        let clauses = "WHERE d > 2 SHUFFLE WITHIN 500 ROWS SEED 4 BATCH 24 REPEAT 2";
        let select = "*, 100 / (id % 3 + 1) + random_uniform(0, 1) AS drawn";
        let both = Both::of(cluster.session(SMALL), folder.path(), select, clauses).await;
        let mut run = both.there.run("p", RunConfig::default()).await.unwrap();
        let found = digest(&rest(&mut run).await);
        assert_eq!(
            found,
            both.expected(RunConfig::default()).await,
            "{workers} workers"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn line_52_a_token_resumes_on_either_side() {
    let folder = tempfile::tempdir().unwrap();
    write_table(folder.path());
    let cluster = ServiceCluster::start(2).await;
    let clauses = "SHUFFLE WITHIN 300 ROWS SEED 1 BATCH 32 REPEAT 2";
    let both = Both::of(cluster.session(SMALL), folder.path(), "*", clauses).await;
    let expected = both.expected(RunConfig::default()).await;
    for (from, to) in [(&both.here, &both.there), (&both.there, &both.here)] {
        let mut run = from.run("p", RunConfig::default()).await.unwrap();
        let mut batches = take(&mut run, 41).await;
        drop(run);
        let token = batches[40].token().to_json().unwrap();
        assert!(token.len() < 4000, "{} bytes", token.len());
        let config = RunConfig {
            resume: Some(Arc::new(Token::from_json(&token).unwrap())),
            ..RunConfig::default()
        };
        let mut run = to.run("p", config).await.unwrap();
        batches.extend(rest(&mut run).await);
        assert_eq!(digest(&batches), expected);
    }
}

/// Defines the pipeline `p` over the photos in `data`, whose resized images are cached in `cache`,
/// and runs it. Returns the digest, and the numbers of rows that were read from the cache and
/// computed.
async fn cached(
    session: &Session,
    (data, cache): (&Path, &Path),
    tail: &str,
) -> (String, Option<(u64, u64)>) {
    let sql = format!(
        "CREATE OR REPLACE PIPELINE p AS SELECT label, {tail} AS pixels
         FROM (SELECT label, resize_shortest(decode_image(image), 24) AS x FROM images('{}')) AS q
         SHUFFLE WITHIN 20 ROWS SEED 3 BATCH 8 REPEAT 3
         CACHE AT resize_shortest OPTIONS (cache_dir = '{}')",
        data.display(),
        cache.display()
    );
    session.execute(&sql).await.unwrap();
    let mut config = RunConfig::default();
    config.internals.segment_rows = Some(2);
    let mut run = session.run("p", config).await.unwrap();
    let batches = rest(&mut run).await;
    (digest(&batches), run.cached())
}

#[tokio::test(flavor = "multi_thread")]
async fn line_60_another_job_uses_the_cached_rows() {
    let (data, caches) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    photos(data.path(), 60, 3);
    let tails = [
        "random_crop(x, 20, 20)",
        "random_hflip(center_crop(x, 16, 16))",
    ];
    let own = caches.path().join("own");
    let here = Session::new();
    let [(first, _), (second, _)] = [
        cached(&here, (data.path(), &own), tails[0]).await,
        cached(&here, (data.path(), &own), tails[1]).await,
    ];
    for workers in [1, 2, 5] {
        let cluster = ServiceCluster::start(workers).await;
        let dir = caches.path().join(workers.to_string());
        let folders = (data.path(), &*dir);
        let cold = cached(&cluster.session(LARGE), folders, tails[0]).await;
        assert_eq!(cold, (first.clone(), Some((120, 60))), "{workers} workers");
        let warm = cached(&cluster.session(LARGE), folders, tails[1]).await;
        assert_eq!(warm, (second.clone(), Some((180, 0))), "{workers} workers");
    }
}
