//! Workers compute the segments of random pipelines. The batches, errors and dead letters are those
//! of one process, and a token resumes on either side.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/draw.rs"]
mod draw;
#[path = "common/sequences.rs"]
mod sequences;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow::array::{AsArray, PrimitiveArray, RecordBatch};
use arrow::datatypes::Int64Type;
use async_trait::async_trait;
use bytes::Bytes;
use common::cluster::{cluster, engine, moved};
use common::parallel::{cores, on_threads};
use draw::Draw;
use forebay::forebay_cluster::WindowSettings;
use forebay::forebay_cluster::engine::{
    BlobHash, EngineError, LeaseEngine, LeaseOutput, LeaseRequest, WorkerId,
};
use forebay::forebay_cluster::in_process::InProcessEngine;
use forebay::forebay_cluster::request::WorkerRequest;
use forebay::forebay_cluster::source_request::SourceAction;
use forebay::{Batch, Cluster, RunConfig, Session, Token};
use futures::future::BoxFuture;
use sequences::pipeline;
use tokio::runtime::Runtime;

/// Environment variable with the number of random pipelines (default 300).
const CASES_VARIABLE: &str = "FOREBAY_CLUSTER_CASES";
const WORKERS: usize = 3;

/// Batches of a run, and the error that ended it.
type Ended = (Vec<Batch>, Option<String>);

/// Runs the pipeline `p` of `session` up to `most` batches.
async fn ended(session: &Session, config: RunConfig, most: usize) -> Ended {
    let mut run = match session.run("p", config).await {
        Ok(run) => run,
        Err(error) => return (Vec::new(), Some(error.to_string())),
    };
    let mut batches = Vec::new();
    while batches.len() < most {
        match run.next().await {
            Some(Ok(batch)) => batches.push(batch),
            Some(Err(error)) => return (batches, Some(error.to_string())),
            None => break,
        }
    }
    (batches, None)
}

fn shown((batches, error): &Ended) -> (Vec<(u64, u64, RecordBatch)>, Option<String>) {
    let batches = batches.iter();
    let batches = batches.map(|b| (b.epoch, b.step, b.batch.clone()));
    (batches.collect(), error.clone())
}

/// Compares a random pipeline in the session `here` with the same in `there`, a session on a cluster.
/// The files are in `folder`.
async fn check(
    (here, there): (&Session, &Session),
    folder: &Path,
    seed: u64,
) -> Result<(), String> {
    let mut draw = Draw::new(seed);
    let sql = pipeline(&mut draw);
    let created = format!("CREATE OR REPLACE PIPELINE p AS {sql}");
    here.execute(&created).await.unwrap();
    // Workers cache the rows of every pipeline whose rows can be.
    let can_cache = sql.contains("AS may_fail") && !sql.contains("MIX") && !sql.contains("JOIN");
    let options = format!("CACHE AT may_fail OPTIONS (cache_dir = '{NOWHERE}/cache', ");
    let on_workers = if can_cache {
        created.replace("OPTIONS (", &options)
    } else {
        created
    };
    there.execute(&on_workers).await.unwrap();
    let world = draw.pick(&[1, 1, 2, 3]);
    let mut config = RunConfig {
        world,
        rank: draw.whole(0, world - 1),
        ..RunConfig::default()
    };
    config.internals.segment_rows = draw.chance(60).then(|| draw.whole(1, 40));
    let all = usize::MAX;
    let local = ended(here, config.clone(), all).await;
    let (on_workers, error) = ended(there, config.clone(), all).await;
    // Errors name the files as the client does.
    let folder = folder.to_str().unwrap();
    let on_workers = (on_workers, error.map(|text| text.replace(NOWHERE, folder)));
    if shown(&local) != shown(&on_workers) {
        return Err(format!(
            "seed {seed}: {sql}\nlocal {:?}\nworkers {:?}",
            shown(&local),
            shown(&on_workers)
        ));
    }
    let (batches, None) = &local else {
        return Ok(());
    };
    if batches.is_empty() {
        return Ok(());
    }
    // A token of either side resumes on the other one.
    let steps = draw.whole(1, batches.len() as u64) as usize;
    for (from, to) in [(here, there), (there, here)] {
        let (first, _) = ended(from, config.clone(), steps).await;
        let token = first.last().unwrap().token().to_json().unwrap();
        let resumed = RunConfig {
            resume: Some(Arc::new(Token::from_json(&token).unwrap())),
            ..config.clone()
        };
        let rest = shown(&ended(to, resumed, all).await);
        let expected = shown(&(batches[steps..].to_vec(), None));
        if rest != expected {
            return Err(format!(
                "seed {seed}: {sql}\nresumed after {steps}: {rest:?}\nexpected {expected:?}"
            ));
        }
    }
    Ok(())
}

/// The folder that the client names. It does not exist; workers find its files elsewhere.
const NOWHERE: &str = "/nowhere/data";

/// Returns a session with the tables in `folder`, and a session on a cluster with the same tables. The
/// second one cannot read the files itself.
async fn sessions(folder: &Path) -> (Session, Session) {
    let here = sequences::session(folder).await;
    let nowhere = Path::new(NOWHERE);
    let engine = engine(WORKERS, Some((nowhere, folder)));
    let cluster = Cluster::new(Arc::new(engine), WindowSettings::default());
    let there = Session::on_cluster(cluster);
    sequences::define_tables(&there, nowhere).await;
    (here, there)
}

/// Both sessions, the runtime that runs them, and the folder with their files.
struct Setting {
    here: Session,
    there: Session,
    runtime: Runtime,
    folder: PathBuf,
}

impl Setting {
    /// Returns a setting in a new folder in `parent`.
    fn new(parent: &Path) -> Self {
        let folder = tempfile::tempdir_in(parent).unwrap().keep();
        let runtime = Runtime::new().unwrap();
        let (here, there) = runtime.block_on(sessions(&folder));
        Self {
            here,
            there,
            runtime,
            folder,
        }
    }

    fn check(&self, seed: u64) -> Result<(), String> {
        let sessions = (&self.here, &self.there);
        self.runtime.block_on(check(sessions, &self.folder, seed))
    }
}

#[test]
fn workers_yield_the_stream_of_one_process() {
    let parent = tempfile::tempdir().unwrap();
    let start = || Setting::new(parent.path());
    if let Ok(seed) = std::env::var("FOREBAY_CLUSTER_SEED") {
        start().check(seed.parse().unwrap()).unwrap();
        return;
    }
    let cases: u64 = std::env::var(CASES_VARIABLE).map_or(300, |cases| cases.parse().unwrap());
    let results = on_threads(cores(), 0..cases, start, Setting::check);
    let failed: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    assert!(
        failed.is_empty(),
        "{} of {cases}: {}",
        failed.len(),
        failed[0]
    );
    let folders = std::fs::read_dir(parent.path()).unwrap();
    let caches = folders.map(|folder| folder.unwrap().path().join("cache"));
    // A thread that had few pipelines may have cached nothing.
    let entries: usize = caches
        .map(|cache| std::fs::read_dir(cache).map_or(0, Iterator::count))
        .sum();
    assert!(entries > 5, "{entries} entries are cached");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_the_cluster_lost_is_stored_again() {
    let folder = tempfile::tempdir().unwrap();
    let session = sequences::session(folder.path()).await;
    let sql = "CREATE PIPELINE p AS SELECT id FROM a BATCH 5";
    session.execute(sql).await.unwrap();
    let local = ended(&session, RunConfig::default(), usize::MAX).await;
    for _ in 0..2 {
        // Workers that have the job open need no description, so each round has new workers.
        let engine = engine(WORKERS, None);
        engine.forget_blobs();
        let cluster = Cluster::new(Arc::new(engine), WindowSettings::default());
        let there = moved(&session, cluster, "p").await.unwrap();
        let there = ended(&there, RunConfig::default(), usize::MAX).await;
        assert_eq!(shown(&there), shown(&local));
    }
}

/// An engine that notes what its clients ask for.
#[derive(Debug)]
struct NotingEngine {
    inner: InProcessEngine,
    requests: Mutex<Vec<WorkerRequest>>,
}

#[async_trait]
impl LeaseEngine for NotingEngine {
    async fn put(&self, blob: Bytes) -> Result<BlobHash, EngineError> {
        self.inner.put(blob).await
    }

    fn submit(&self, lease: LeaseRequest) -> BoxFuture<'static, Result<LeaseOutput, EngineError>> {
        let request = WorkerRequest::decode(&lease.payload).unwrap();
        self.requests.lock().unwrap().push(request);
        self.inner.submit(lease)
    }

    async fn workers(&self) -> Result<Vec<WorkerId>, EngineError> {
        self.inner.workers().await
    }
}

/// Ranks need to know which rows a filter keeps before any row is computed.
#[tokio::test(flavor = "multi_thread")]
async fn workers_count_the_rows_that_a_client_needs_to_know() {
    let folder = tempfile::tempdir().unwrap();
    let here = sequences::session(folder.path()).await;
    let engine = Arc::new(NotingEngine {
        inner: engine(WORKERS, None),
        requests: Mutex::default(),
    });
    let cluster = Cluster::new(Arc::clone(&engine) as _, WindowSettings::default());
    let there = Session::on_cluster(cluster);
    sequences::define_tables(&there, folder.path()).await;
    let sql = "CREATE PIPELINE p AS SELECT id FROM a WHERE id % 3 = 1 SHUFFLE WITHIN 9 ROWS BATCH 2
               OPTIONS (optimize = 'off')";
    let config = RunConfig {
        rank: 1,
        world: 2,
        ..RunConfig::default()
    };
    here.execute(sql).await.unwrap();
    there.execute(sql).await.unwrap();
    let local = ended(&here, config.clone(), usize::MAX).await;
    let there = ended(&there, config, usize::MAX).await;
    assert_eq!(shown(&there), shown(&local));
    let requests = engine.requests.lock().unwrap();
    let counts = |of: fn(&WorkerRequest) -> bool| requests.iter().filter(|r| of(r)).count();
    assert!(counts(|request| matches!(request, WorkerRequest::Count(_))) > 0);
    assert!(counts(|request| matches!(request, WorkerRequest::Segments(_))) > 0);
    let is_read = |request: &WorkerRequest| match request {
        WorkerRequest::Source(request) => request.action != SourceAction::Open,
        _ => false,
    };
    assert_eq!(
        requests.iter().filter(|request| is_read(request)).count(),
        0
    );
}

/// An engine whose workers end when they compute the row with the id [`POISON`].
#[derive(Debug)]
struct PoisonedEngine {
    inner: InProcessEngine,
    /// Number of workers that ended.
    ended: Arc<Mutex<u64>>,
}

const POISON: i64 = 37;

/// Returns the name of the `nth` worker. The next one takes the place of one that ended.
fn nth(nth: u64) -> WorkerId {
    WorkerId(format!("worker {nth}"))
}

#[async_trait]
impl LeaseEngine for PoisonedEngine {
    async fn put(&self, blob: Bytes) -> Result<BlobHash, EngineError> {
        self.inner.put(blob).await
    }

    fn submit(&self, lease: LeaseRequest) -> BoxFuture<'static, Result<LeaseOutput, EngineError>> {
        let is_lease = matches!(
            WorkerRequest::decode(&lease.payload),
            Ok(WorkerRequest::Segments(_))
        );
        let (computed, ended) = (self.inner.submit(lease), Arc::clone(&self.ended));
        Box::pin(async move {
            let output = computed.await?;
            let is_poison = |batch: &RecordBatch| {
                let ids = batch.columns().iter().filter_map(|c| c.as_primitive_opt());
                let mut ids = ids.map(PrimitiveArray::<Int64Type>::values);
                ids.any(|ids| ids.contains(&POISON))
            };
            let mut ended = ended.lock().unwrap();
            if is_lease && output.batches.iter().any(is_poison) {
                *ended += 1;
                return Err(EngineError::WorkerLost {
                    worker: Some(nth(*ended)),
                    cause: "it was killed".to_owned(),
                });
            }
            let worker = nth(*ended + 1);
            Ok(LeaseOutput { worker, ..output })
        })
    }

    async fn workers(&self) -> Result<Vec<WorkerId>, EngineError> {
        Ok(vec![nth(*self.ended.lock().unwrap() + 1)])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_ends_its_workers_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.json");
    let lines = (0..200).map(|id| format!("{{\"id\": {id}}}\n"));
    std::fs::write(&file, lines.collect::<String>()).unwrap();
    let ended_workers = Arc::new(Mutex::new(0));
    let engine = PoisonedEngine {
        inner: engine(1, None),
        ended: Arc::clone(&ended_workers),
    };
    let cluster = Cluster::new(Arc::new(engine), WindowSettings::default());
    let session = Session::on_cluster(cluster);
    let sql = format!(
        "CREATE PIPELINE p AS SELECT id FROM json('{}') AS t SHUFFLE WITHIN 100 ROWS BATCH 50",
        file.display()
    );
    session.execute(&sql).await.unwrap();
    let (_, error) = ended(&session, RunConfig::default(), usize::MAX).await;
    let error = error.unwrap();
    let row = format!("while they computed row {POISON} of '{}'", file.display());
    assert!(error.contains(&row), "{error}");
    assert!(*ended_workers.lock().unwrap() <= 6, "{error}");
}

/// Clients that run equal pipelines over equal data share what workers have open.
#[tokio::test(flavor = "multi_thread")]
async fn equal_pipelines_share_a_job() {
    let folder = tempfile::tempdir().unwrap();
    sequences::session(folder.path()).await;
    let engine = Arc::new(NotingEngine {
        inner: engine(WORKERS, None),
        requests: Mutex::default(),
    });
    let mut jobs = Vec::new();
    for take in [7, 7, 8] {
        let cluster = Cluster::new(Arc::clone(&engine) as _, WindowSettings::default());
        let session = Session::on_cluster(cluster);
        sequences::define_tables(&session, folder.path()).await;
        let sql = format!("CREATE PIPELINE p AS SELECT id + {take} AS id FROM a BATCH 5");
        session.execute(&sql).await.unwrap();
        engine.requests.lock().unwrap().clear();
        ended(&session, RunConfig::default(), usize::MAX).await;
        let requests = engine.requests.lock().unwrap();
        let job = requests.iter().find_map(|request| match request {
            WorkerRequest::Segments(lease) => Some(lease.job()),
            _ => None,
        });
        jobs.push(job.unwrap());
    }
    assert_eq!(jobs[0], jobs[1]);
    assert_ne!(jobs[0], jobs[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn structural_damage_is_the_error_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.json");
    let lines: String = (0..60_000)
        .map(|id| format!("{{\"id\": {id}}}\n"))
        .collect();
    std::fs::write(&file, &lines).unwrap();
    let (here, there) = (Session::new(), Session::on_cluster(cluster(WORKERS)));
    let sql = format!(
        "CREATE PIPELINE p AS SELECT id FROM json('{}') AS t SHUFFLE WITHIN 500 ROWS BATCH 100",
        file.display()
    );
    here.execute(&sql).await.unwrap();
    there.execute(&sql).await.unwrap();
    // The file is damaged after it was opened.
    std::fs::write(&file, lines.replace("{\"id\": 50000}", "{\"id\": x0000}")).unwrap();
    let local = ended(&here, RunConfig::default(), usize::MAX).await;
    let there = ended(&there, RunConfig::default(), usize::MAX).await;
    assert!(local.1.is_some());
    assert!(there.1.is_some());
    let (there, local) = (shown(&there).0, shown(&local).0);
    assert_eq!(there[..], local[..there.len()]);
}

/// The client computes the last steps that only make rows wider, so workers send narrow rows.
#[tokio::test(flavor = "multi_thread")]
async fn the_client_normalises_images() {
    let folder = tempfile::tempdir().unwrap();
    common::photos(folder.path(), 12, 3);
    std::fs::write(folder.path().join("class0/broken.jpg"), "no photo").unwrap();
    for optimize in ["off", "default"] {
        let sql = format!(
            "CREATE PIPELINE p AS
             SELECT label, normalize(random_hflip(random_resized_crop(decode_image(image), 24, 24)), 'imagenet') AS pixels
             FROM images('{}') SHUFFLE WITHIN 8 ROWS BATCH 5
             OPTIONS (on_error = 'skip', optimize = '{optimize}')",
            folder.path().display()
        );
        let (here, there) = (Session::new(), Session::on_cluster(cluster(WORKERS)));
        here.execute(&sql).await.unwrap();
        there.execute(&sql).await.unwrap();
        let mut config = RunConfig::default();
        config.internals.segment_rows = Some(2);
        let local = shown(&ended(&here, config.clone(), usize::MAX).await);
        assert_eq!(local.0.len(), 3);
        assert_eq!(
            shown(&ended(&there, config.clone(), usize::MAX).await),
            local
        );

        let step = "the client computes pixels = image_program[normalize](pixels)";
        let explained = |session| explained(session, config.clone());
        assert!(!explained(&here).await.contains(step));
        let text = explained(&there).await;
        assert!(text.contains(step), "{text}");
        // The operators of the workers stand below the client's.
        let operators = text.split_once("Measured").unwrap().1;
        let projections: Vec<&str> = { operators.lines() }
            .filter(|line| line.contains("ProjectExec: "))
            .collect();
        let [client, workers] = projections[..] else {
            panic!("{text}")
        };
        assert!(
            client.contains("image_program[normalize](pixels)"),
            "{text}"
        );
        assert!(workers.contains("random_hflip"), "{text}");
        assert!(!workers.contains("normalize"), "{text}");
    }
}

/// Returns the answer to EXPLAIN ANALYZE.
async fn explained(session: &Session, config: RunConfig) -> String {
    session
        .explain("p", config, true)
        .await
        .unwrap()
        .to_string()
}
