//! A stream whose processes are killed, stopped and started again at random has the batches of one
//! process.

#![allow(clippy::print_stdout, reason = "shows the waits of a long run")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay::forebay_cluster::WindowSettings;
use forebay::forebay_cluster::ballista::{BallistaEngine, EngineOptions};
use forebay::{Batch, Cluster, RunConfig, Session, Token};
use forebay_runtime::cache::{CacheOptions, Stores};

use super::common::{digest, photos};
use super::draw::Draw;
use super::harness::{rest, take};
use super::process::Process;

/// Environment variable with the number of random runs (default 2).
const RUNS_VARIABLE: &str = "FOREBAY_CHAOS_PROCESS_RUNS";
/// Environment variable with the first random run (default 0).
const FIRST_VARIABLE: &str = "FOREBAY_CHAOS_PROCESS_FIRST";
const WORKERS: usize = 3;

fn process(words: &[&str]) -> Process {
    Process::start(Command::new(env!("CARGO_BIN_EXE_forebay")).args(words))
}

fn start_scheduler(listen: &str) -> Process {
    process(&["scheduler", "--listen", listen])
}

fn start_worker(scheduler: &str) -> Process {
    let words = ["worker", "--scheduler", scheduler];
    process(&[&words[..], &["--threads", "1", "--slots", "2"]].concat())
}

fn signal(process: &Process, name: &str) {
    let (name, id) = (format!("-{name}"), process.child.id().to_string());
    let sent = Command::new("kill").args([&name, &id]).status().unwrap();
    assert!(sent.success());
}

/// A scheduler and workers in processes of their own.
struct Processes {
    address: String,
    scheduler: Option<Process>,
    workers: Vec<Process>,
    /// Index of a worker that is stopped.
    stopped: Option<usize>,
}

impl Processes {
    fn start() -> Self {
        let scheduler = start_scheduler("127.0.0.1:0");
        let address = scheduler.address.clone();
        let workers = (0..WORKERS).map(|_| start_worker(&address));
        Self {
            workers: workers.collect(),
            scheduler: Some(scheduler),
            address,
            stopped: None,
        }
    }

    /// Does something bad that the draw decides, and returns what it was.
    fn disturb(&mut self, draw: &mut Draw) -> &'static str {
        if let Some(stopped) = self.stopped.take() {
            signal(&self.workers[stopped], "CONT");
        }
        let worker = draw.whole(0, WORKERS as u64 - 1) as usize;
        match draw.pick(&[0, 1, 2, 3, 4]) {
            0 => {
                // The old process is killed first.
                self.workers.remove(worker);
                self.workers.push(start_worker(&self.address));
                "a worker was killed"
            }
            1 => {
                self.workers.clear();
                self.workers = (0..WORKERS).map(|_| start_worker(&self.address)).collect();
                "all workers were killed"
            }
            2 => {
                signal(&self.workers[worker], "STOP");
                self.stopped = Some(worker);
                "a worker was stopped"
            }
            3 => {
                self.scheduler = None;
                self.scheduler = Some(start_scheduler(&self.address));
                "the scheduler was killed"
            }
            _ => {
                self.scheduler = None;
                self.workers.remove(worker);
                self.workers.push(start_worker(&self.address));
                self.scheduler = Some(start_scheduler(&self.address));
                "the scheduler and a worker were killed"
            }
        }
    }

    fn session(&self) -> Session {
        let engine = BallistaEngine::new(&EngineOptions::new(&self.address)).unwrap();
        let settings = WindowSettings {
            max_bytes: 256 << 10,
            ..WindowSettings::default()
        };
        Session::on_cluster(Cluster::new(Arc::new(engine), settings))
    }
}

/// The folders of a run: that of the photos, and that of the cache if there is one.
#[derive(Clone, Copy)]
struct Folders<'a> {
    photos: &'a Path,
    cache: Option<&'a Path>,
}

async fn define(session: &Session, folders: Folders<'_>) {
    let cache = |dir: &Path| {
        let dir = dir.display();
        format!("CACHE AT decode_image OPTIONS (cache_dir = '{dir}')")
    };
    let sql = format!(
        "CREATE PIPELINE p AS
         SELECT label, random_hflip(random_resized_crop(decode_image(image), 32, 32)) AS pixels
         FROM images('{}') AS t SHUFFLE WITHIN 20 ROWS SEED 3 BATCH 8 REPEAT 8 {}",
        folders.photos.display(),
        folders.cache.map(cache).unwrap_or_default(),
    );
    session.execute(&sql).await.unwrap();
}

/// Returns the digest of the pipeline in this process.
async fn local(folders: Folders<'_>) -> String {
    let here = Session::new();
    define(&here, folders).await;
    digest(&rest(&mut here.run("p", RunConfig::default()).await.unwrap()).await)
}

/// Runs the pipeline while its processes are disturbed. Returns the batches, and the longest wait
/// for one.
async fn disturbed(folders: Folders<'_>, seed: u64) -> (Vec<Batch>, Duration) {
    let mut draw = Draw::new(seed);
    let mut processes = Processes::start();
    let session = processes.session();
    define(&session, folders).await;
    let mut run = session.run("p", RunConfig::default()).await.unwrap();
    let (mut batches, mut longest) = (Vec::new(), Duration::ZERO);
    for _ in 0..4 {
        batches.extend(take(&mut run, draw.whole(1, 12) as usize).await);
        let what = processes.disturb(&mut draw);
        let start = Instant::now();
        batches.extend(take(&mut run, 8).await);
        longest = longest.max(start.elapsed());
        println!("run {seed}: {what}: 8 batches took {:?}", start.elapsed());
        if draw.chance(30) {
            // The client is gone, and another one resumes.
            let token = batches.last().unwrap().token().to_json().unwrap();
            drop(run);
            let config = RunConfig {
                resume: Some(Arc::new(Token::from_json(&token).unwrap())),
                ..RunConfig::default()
            };
            let again = processes.session();
            define(&again, folders).await;
            run = again.run("p", config).await.unwrap();
        }
    }
    batches.extend(rest(&mut run).await);
    (batches, longest)
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_stopped_processes_do_not_change_the_stream() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |value| value.parse().unwrap())
    };
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    photos(folder.path(), 90, 3);
    let plain = Folders {
        photos: folder.path(),
        cache: None,
    };
    let expected = local(plain).await;
    let first = number(FIRST_VARIABLE, 0);
    for seed in first..first + number(RUNS_VARIABLE, 2) {
        // Every other run fills a cache.
        let dir = cache.path().join(seed.to_string());
        let folders = Folders {
            cache: (seed % 2 == 1).then_some(&*dir),
            ..plain
        };
        let (batches, longest) = disturbed(folders, seed).await;
        println!("run {seed}: longest wait for 8 batches {longest:?}");
        assert_eq!(digest(&batches), expected, "run {seed}");
        if folders.cache.is_some() {
            let stores = Stores::default();
            let store = stores.open(dir.to_str().unwrap(), CacheOptions::default());
            let store = store.await.unwrap();
            assert_eq!(store.verify(false).await.unwrap().damaged, []);
            assert!(store.list().await.unwrap()[0].rows > 0);
            assert_eq!(local(folders).await, expected, "run {seed}");
        }
    }
}
