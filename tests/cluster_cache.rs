//! Workers share one cache: each fills it with the rows that it computes, and reads those of the
//! others. The stream is that of one process without a cache.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use common::{digest, parquet, photos, table};
use forebay::forebay_cluster::WindowSettings;
use forebay::forebay_cluster::engine::{
    BlobHash, EngineError, LeaseEngine, LeaseOutput, LeaseRequest, WorkerId,
};
use forebay::forebay_cluster::handler::LeaseHandler;
use forebay::forebay_cluster::in_process::InProcessEngine;
use forebay::forebay_cluster::job_handler::JobHandler;
use forebay::forebay_cluster::jobs::JobSettings;
use forebay::forebay_cluster::request::WorkerRequest;
use forebay::{Cluster, RunConfig, RunInternals, Session};
use forebay_runtime::cache::{CacheOptions, CacheStore, Stores};
use futures::future::BoxFuture;

const PHOTOS: u64 = 60;
const EPOCHS: u64 = 3;

/// Digest of a run, and the numbers of rows that were read from the cache and computed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outcome {
    digest: String,
    read: u64,
    computed: u64,
}

impl Outcome {
    /// Returns the outcome of a run of all epochs that computes `computed` rows.
    fn of(digest: &str, computed: u64) -> Self {
        Self {
            digest: digest.to_owned(),
            read: PHOTOS * EPOCHS - computed,
            computed,
        }
    }
}

/// Returns small segments, so that leases go to several workers.
fn config() -> RunConfig {
    RunConfig {
        internals: RunInternals {
            segment_rows: Some(2),
            ..RunInternals::default()
        },
        ..RunConfig::default()
    }
}

async fn run_with(session: &Session, sql: &str, config: RunConfig) -> Result<Outcome, String> {
    session.execute(sql).await.map_err(|e| e.to_string())?;
    let mut run = session.run("p", config).await.map_err(|e| e.to_string())?;
    let mut batches = Vec::new();
    while let Some(batch) = run.next().await {
        batches.push(batch.map_err(|e| e.to_string())?);
    }
    let (read, computed) = run.cached().unwrap_or_default();
    Ok(Outcome {
        digest: digest(&batches),
        read,
        computed,
    })
}

async fn run(session: &Session, sql: &str) -> Outcome {
    run_with(session, sql, config()).await.unwrap()
}

/// Returns a pipeline over the photos in `data`, whose resized images are cached in `cache`.
fn pipeline(data: &Path, cache: Option<&Path>) -> String {
    let cache = match cache {
        Some(dir) => format!(
            "CACHE AT resize_shortest OPTIONS (cache_dir = '{}')",
            dir.display()
        ),
        None => String::new(),
    };
    format!(
        "CREATE OR REPLACE PIPELINE p AS SELECT label, random_crop(x, 20, 20) AS pixels
         FROM (SELECT label, resize_shortest(decode_image(image), 24) AS x FROM images('{}')) AS q
         SHUFFLE WITHIN 5 ROWS SEED 3 BATCH 8 REPEAT {EPOCHS} {cache}",
        data.display()
    )
}

/// A worker that finds the folders of the client at the given places.
fn worker(roots: &[(&Path, &Path)]) -> JobHandler {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    JobHandler::new(JobSettings {
        roots: { roots.iter() }
            .map(|(theirs, ours)| (text(theirs), text(ours)))
            .collect(),
        ..JobSettings::default()
    })
}

fn session(engine: impl LeaseEngine) -> Session {
    let cluster = Cluster::new(Arc::new(engine), WindowSettings::default());
    Session::on_cluster(cluster)
}

/// Returns a session on a cluster of new workers, each with its own places of folders.
fn on_workers(workers: &[&[(&Path, &Path)]]) -> Session {
    let handlers = workers.iter().map(|roots| Arc::new(worker(roots)) as _);
    session(InProcessEngine::new(handlers))
}

/// Folders of a test.
struct Folders {
    root: tempfile::TempDir,
    data: PathBuf,
    cache: PathBuf,
}

impl Folders {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let folders = Self {
            data: root.path().join("data"),
            cache: root.path().join("cache"),
            root,
        };
        photos(&folders.data, PHOTOS as u32, 3);
        folders
    }

    fn cached(&self) -> String {
        pipeline(&self.data, Some(&self.cache))
    }

    /// Returns the digest of one process without a cache.
    async fn expected(&self) -> String {
        run(&Session::new(), &pipeline(&self.data, None))
            .await
            .digest
    }

    async fn store(&self) -> CacheStore {
        let location = self.cache.to_str().unwrap();
        let stores = Stores::default();
        let opened = stores.open(location, CacheOptions::default()).await;
        opened.unwrap()
    }

    /// Checks that the cache has each row once, and returns the shards that have them.
    async fn check_rows(&self) -> BTreeSet<u32> {
        let store = self.store().await;
        let entries = store.list().await.unwrap();
        assert_eq!((entries.len(), entries[0].rows), (1, PHOTOS));
        assert_eq!(store.verify(false).await.unwrap().damaged, []);
        entries[0].segments.iter().map(|s| s.shard).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_decode_each_photo_once_and_share_what_they_decoded() {
    let folders = Folders::new();
    let expected = folders.expected().await;
    for workers in [1, 2, 5] {
        std::fs::remove_dir_all(&folders.cache).ok();
        let roots: Vec<&[(&Path, &Path)]> = vec![&[]; workers];
        // The first epoch decodes the photos, and the others read them.
        let cold = run(&on_workers(&roots), &folders.cached()).await;
        assert_eq!(cold, Outcome::of(&expected, PHOTOS), "{workers} workers");
        let shards = folders.check_rows().await;
        assert!(shards.len() > usize::from(workers > 1), "{shards:?}");
        // Neither new workers nor one process decode any of them.
        let all = Outcome::of(&expected, 0);
        let warm = run(&on_workers(&roots), &folders.cached()).await;
        assert_eq!(warm, all, "{workers} workers");
        assert_eq!(run(&Session::new(), &folders.cached()).await, all);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_read_what_one_process_decoded() {
    let folders = Folders::new();
    let expected = folders.expected().await;
    let cold = run(&Session::new(), &folders.cached()).await;
    assert_eq!(cold, Outcome::of(&expected, PHOTOS));
    let warm = run(&on_workers(&[&[], &[]]), &folders.cached()).await;
    assert_eq!(warm, Outcome::of(&expected, 0));
    assert_eq!(folders.check_rows().await, BTreeSet::from([0]));
}

/// Workers that have a job open find what others have cached since.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_run_of_the_same_workers_finds_the_rows_of_others() {
    let folders = Folders::new();
    let expected = folders.expected().await;
    let session = on_workers(&[&[], &[]]);
    let sql = folders.cached();
    let mut first_batch = config();
    first_batch.limit_batches = Some(1);
    let part = run_with(&session, &sql, first_batch).await.unwrap();
    assert!(part.computed > 0 && part.computed < PHOTOS, "{part:?}");
    run(&Session::new(), &sql).await;
    assert_eq!(run(&session, &sql).await, Outcome::of(&expected, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_found_under_other_mount_points() {
    let folders = Folders::new();
    let expected = folders.expected().await;
    // Two mount points of the same files.
    let data2 = folders.root.path().join("data2");
    for class in std::fs::read_dir(&folders.data).unwrap() {
        let class = class.unwrap();
        let class2 = data2.join(class.file_name());
        std::fs::create_dir_all(&class2).unwrap();
        for photo in std::fs::read_dir(class.path()).unwrap() {
            let photo = photo.unwrap();
            std::fs::hard_link(photo.path(), class2.join(photo.file_name())).unwrap();
        }
    }
    let cache2 = folders.root.path().join("cache2");
    std::os::unix::fs::symlink(&folders.cache, &cache2).unwrap();
    std::fs::create_dir(&folders.cache).unwrap();
    let (data, cache) = (Path::new("/nowhere/data"), Path::new("/nowhere/cache"));
    let first: &[_] = &[(data, &*folders.data), (cache, &*folders.cache)];
    let second: &[_] = &[(data, &*data2), (cache, &*cache2)];
    let sql = pipeline(data, Some(cache));
    let cold = run(&on_workers(&[first, second]), &sql).await;
    assert_eq!(cold, Outcome::of(&expected, PHOTOS));
    assert_eq!(folders.check_rows().await.len(), 2);
    for mounted in [first, second] {
        let warm = run(&on_workers(&[mounted]), &sql).await;
        assert_eq!(warm, Outcome::of(&expected, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_workers_do_not_share_is_refused() {
    let folders = Folders::new();
    let other = folders.root.path().join("other");
    let file = folders.root.path().join("file");
    std::fs::write(&file, "").unwrap();
    let elsewhere: &[_] = &[(&*folders.cache, &*other)];
    let unusable: &[_] = &[(&*folders.cache, &*file)];
    for (roots, reason) in [
        (elsewhere, "its folder is not that of worker"),
        (unusable, "as a cache"),
    ] {
        let session = on_workers(&[&[], &[], roots]);
        let error = run_with(&session, &folders.cached(), config()).await;
        let error = error.unwrap_err();
        let dir = folders.cache.display();
        let start = format!("cache_dir is not shared: '{dir}' has to be the same folder");
        assert!(error.contains(&start), "{error}");
        assert!(error.contains(reason), "{error}");
        // Nothing is computed before.
        assert_eq!(folders.store().await.list().await.unwrap(), []);
    }
    // Without a cache, the folder does not matter.
    let off = folders
        .cached()
        .replace("CACHE AT resize_shortest", "CACHE OFF");
    let session = on_workers(&[&[], elsewhere]);
    assert_eq!(run(&session, &off).await.digest, folders.expected().await);
}

/// An engine to which a worker comes when the first lease was computed.
#[derive(Debug)]
struct GrowingEngine {
    before: InProcessEngine,
    after: InProcessEngine,
    leases: AtomicU64,
}

impl GrowingEngine {
    fn now(&self) -> &InProcessEngine {
        match self.leases.load(Ordering::Relaxed) {
            0 => &self.before,
            _ => &self.after,
        }
    }
}

#[async_trait]
impl LeaseEngine for GrowingEngine {
    async fn put(&self, blob: Bytes) -> Result<BlobHash, EngineError> {
        self.before.put(blob.clone()).await?;
        self.after.put(blob).await
    }

    fn submit(&self, lease: LeaseRequest) -> BoxFuture<'static, Result<LeaseOutput, EngineError>> {
        let is_lease = matches!(
            WorkerRequest::decode(&lease.payload),
            Ok(WorkerRequest::Segments(_))
        );
        let submitted = self.now().submit(lease);
        self.leases
            .fetch_add(u64::from(is_lease), Ordering::Relaxed);
        submitted
    }

    async fn workers(&self) -> Result<Vec<WorkerId>, EngineError> {
        self.now().workers().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_joins_without_the_folder_gets_no_leases() {
    let folders = Folders::new();
    let other = folders.root.path().join("other");
    let shares: Arc<dyn LeaseHandler> = Arc::new(worker(&[]));
    let lacks: Arc<dyn LeaseHandler> = Arc::new(worker(&[(&folders.cache, &other)]));
    let engine = GrowingEngine {
        before: InProcessEngine::new([Arc::clone(&shares)]),
        after: InProcessEngine::new([shares, lacks]),
        leases: AtomicU64::new(0),
    };
    let all = run(&session(engine), &folders.cached()).await;
    assert_eq!(all, Outcome::of(&folders.expected().await, PHOTOS));
    assert_eq!(folders.check_rows().await, BTreeSet::from([0]));
    assert!(!other.exists());
}

/// Workers of which one ends when it has computed some leases. A new one takes its place.
#[derive(Debug)]
struct MortalEngine {
    workers: Mutex<Vec<(WorkerId, InProcessEngine)>>,
    /// Number of leases that are computed before a worker ends.
    leases_left: AtomicU64,
}

impl MortalEngine {
    fn new(workers: usize, leases: u64) -> Self {
        let new = |nth: usize| (WorkerId(format!("worker {nth}")), one_worker());
        Self {
            workers: Mutex::new((0..workers).map(new).collect()),
            leases_left: AtomicU64::new(leases),
        }
    }
}

fn one_worker() -> InProcessEngine {
    InProcessEngine::new([Arc::new(worker(&[])) as _])
}

#[async_trait]
impl LeaseEngine for MortalEngine {
    async fn put(&self, blob: Bytes) -> Result<BlobHash, EngineError> {
        let workers: Vec<_> = self.workers.lock().unwrap().clone();
        for (_, worker) in workers {
            worker.put(blob.clone()).await?;
        }
        Ok(BlobHash::of(&blob))
    }

    fn submit(&self, lease: LeaseRequest) -> BoxFuture<'static, Result<LeaseOutput, EngineError>> {
        let is_lease = matches!(
            WorkerRequest::decode(&lease.payload),
            Ok(WorkerRequest::Segments(_))
        );
        let mut workers = self.workers.lock().unwrap();
        let fit = (0..workers.len()).filter(|nth| !lease.avoid.contains(&workers[*nth].0));
        let fit: Vec<usize> = fit.collect();
        let nth = fit[lease.affinity as usize % fit.len()];
        let (id, worker) = workers[nth].clone();
        let ends = is_lease && self.leases_left.fetch_sub(1, Ordering::Relaxed) == 1;
        if ends {
            workers[nth] = (WorkerId(format!("{} again", id.0)), one_worker());
        }
        let submitted = worker.submit(LeaseRequest {
            avoid: Vec::new(),
            ..lease
        });
        Box::pin(async move {
            let output = submitted.await?;
            if ends {
                return Err(EngineError::WorkerLost {
                    worker: Some(id),
                    cause: "it was killed".to_owned(),
                });
            }
            Ok(LeaseOutput {
                worker: id,
                ..output
            })
        })
    }

    async fn workers(&self) -> Result<Vec<WorkerId>, EngineError> {
        let workers = self.workers.lock().unwrap();
        Ok(workers.iter().map(|(id, _)| id.clone()).collect())
    }
}

/// The rows that the worker holds in memory are lost. The next epoch computes and caches them again.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_ends_while_it_fills_the_cache_loses_only_its_own_rows() {
    let folders = Folders::new();
    let expected = folders.expected().await;
    for leases in [1, 3, 4] {
        std::fs::remove_dir_all(&folders.cache).ok();
        let engine = MortalEngine::new(2, leases);
        let filled = run(&session(engine), &folders.cached()).await;
        assert_eq!(filled.digest, expected);
        let (least, most) = (PHOTOS, 2 * PHOTOS);
        assert!((least..most).contains(&filled.computed), "{filled:?}");
        assert_eq!(filled.read + filled.computed, PHOTOS * EPOCHS);
        folders.check_rows().await;
        let warm = run(&session(MortalEngine::new(2, u64::MAX)), &folders.cached()).await;
        assert_eq!(warm, Outcome::of(&expected, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_fill_one_cache() {
    let folders = Folders::new();
    let session = on_workers(&[&[], &[], &[]]);
    let (plain, cached) = (pipeline(&folders.data, None), folders.cached());
    for round in 0..2 {
        for rank in 0..2 {
            let config = RunConfig {
                world: 2,
                rank,
                epochs: Some(1),
                ..config()
            };
            let local = run_with(&Session::new(), &plain, config.clone()).await;
            let there = run_with(&session, &cached, config).await.unwrap();
            assert_eq!(there.digest, local.unwrap().digest);
            // The ranks share eight batches, of which the last has four rows.
            let rows = [32, 28][rank as usize];
            let expected = if round == 0 { (0, rows) } else { (rows, 0) };
            assert_eq!((there.read, there.computed), expected);
        }
    }
    folders.check_rows().await;
}

/// Rows of Parquet files are staged, and rows that a filter drops are recorded.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_tables_are_cached_by_several_workers() {
    let folder = tempfile::tempdir().unwrap();
    let (file, cache) = (
        folder.path().join("t/t.parquet"),
        folder.path().join("cache"),
    );
    parquet(&file, &table(500), 40);
    let sql = |cache: &str| {
        format!(
            "CREATE OR REPLACE PIPELINE p AS
             SELECT id, upper(name) AS big, x + random_uniform() AS noisy
             FROM parquet('{}') WHERE id % 3 <> 1 AND name IS NOT NULL
             SHUFFLE WITHIN 100 ROWS BATCH 32 REPEAT 2 {cache}",
            file.display()
        )
    };
    let cached = format!("CACHE AT upper OPTIONS (cache_dir = '{}')", cache.display());
    let plain = run(&Session::new(), &sql("")).await;
    let first = run(&on_workers(&[&[], &[], &[]]), &sql(&cached)).await;
    assert_eq!(first.digest, plain.digest);
    for session in [Session::new(), on_workers(&[&[], &[]])] {
        let again = run(&session, &sql(&cached)).await;
        assert_eq!((&again.digest, again.computed), (&plain.digest, 0));
        assert_eq!(again.read, 2 * first.computed.min(first.read));
    }
}

/// Writes to the store `cache` that it was measured to be slow.
fn make_slow(cache: &Path) {
    let since_1970 = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let crawled = r#"{"bytes": 1048576, "nanos": 1000000000000000}"#;
    let at = format!(r#""written_ms": {since_1970}, "read_ms": {since_1970}"#);
    let slow = format!(r#"{{"written": {crawled}, "read": {crawled}, {at}}}"#);
    std::fs::create_dir_all(cache).unwrap();
    std::fs::write(cache.join("bandwidth.json"), slow).unwrap();
}

/// The cache point is chosen from facts that a worker tells, and the workers choose the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_cannot_reach_the_cache_plans_as_one_that_can() {
    let folders = Folders::new();
    let (data, cache) = (Path::new("/nowhere/data"), Path::new("/nowhere/cache"));
    let roots: &[_] = &[(data, &*folders.data), (cache, &*folders.cache)];
    let (here, there) = (Session::new(), on_workers(&[roots, roots]));
    let auto = |sql: String| sql.replace("CACHE AT resize_shortest", "CACHE AUTO");
    let choice = async |session: &Session| {
        let explained = session.execute("EXPLAIN PIPELINE p").await.unwrap();
        let forebay::Outcome::Text(text) = &explained[0] else {
            panic!("{explained:?}");
        };
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.trim().strip_prefix("cache"));
        line.unwrap().trim().to_owned()
    };
    let there_sql = auto(pipeline(data, Some(cache)));
    for (is_filled, expected) in [(false, "none: a cache would cost"), (true, "the rows of x")] {
        if is_filled {
            run(&here, &folders.cached()).await;
        }
        make_slow(&folders.cache);
        here.execute(&auto(folders.cached())).await.unwrap();
        there.execute(&there_sql).await.unwrap();
        for session in [&here, &there] {
            // Each EXPLAIN measures a filled store, which other work of the machine may slow down.
            let mut choices = Vec::new();
            while choices.len() < 100 && choices.last() != Some(&true) {
                choices.push(choice(session).await.starts_with(expected));
            }
            assert_eq!(choices.last(), Some(&true), "{is_filled}: {expected}");
        }
    }
    // The photos are known by the location that the client names.
    let expected = folders.expected().await;
    let sql = pipeline(data, Some(cache));
    assert_eq!(run(&there, &sql).await, Outcome::of(&expected, PHOTOS));
}
