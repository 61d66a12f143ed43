//! Stalls of a stream whose workers are killed while all buffers of the client are full.
//!
//! Scheduler and workers are processes of their own. A stall is the time for which the consumer waits for the next
//! result, beyond the time that the lost lease itself takes.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay::generate::Table;
use forebay::{RunConfig, Session};
use forebay_cluster::ballista::{BallistaEngine, EngineOptions};
use forebay_cluster::codec::{LeaseCodec, LeaseResults};
use forebay_cluster::driver;
use forebay_cluster::engine::{LeaseEngine, LeaseOutput};
use forebay_cluster::window::{ByteSize, LeaseSegment, SegmentInfo, StagedData};
use forebay_cluster::{Cluster, WindowSettings};
use futures::{StreamExt, stream};

use crate::process::{Process, pause};
use crate::{median, millis};

const WORKERS: usize = 3;
const KILLS: usize = 50;
/// Bytes of the result of a segment.
const BYTES: u64 = 4 << 20;
/// Time that most segments take, and that the one takes whose worker is killed.
const SHORT: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(1);
/// One segment of so many takes long. Those behind it fill the window.
const PERIOD: u64 = 40;

fn settings() -> WindowSettings {
    WindowSettings {
        max_bytes: 128 << 20,
        max_lease_segments: 1,
        ..WindowSettings::default()
    }
}

/// A scheduler and workers, and this process's client.
struct Workers {
    scheduler: Process,
    workers: Vec<Process>,
    engine: Arc<BallistaEngine>,
}

impl Workers {
    async fn start() -> Result<Self, Box<dyn Error>> {
        let scheduler = Process::start(&["leases", "scheduler"])?;
        let engine = BallistaEngine::new(&EngineOptions::new(&scheduler.address))?;
        let mut started = Self {
            scheduler,
            workers: Vec::new(),
            engine: Arc::new(engine),
        };
        started.complete().await?;
        Ok(started)
    }

    /// Starts the workers that lack, and waits until all are registered.
    async fn complete(&mut self) -> Result<(), Box<dyn Error>> {
        while self.workers.len() < WORKERS {
            let worker = Process::start(&["leases", "worker", &self.scheduler.address])?;
            self.workers.push(worker);
        }
        while self.engine.workers().await.map_or(0, |known| known.len()) < WORKERS {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Kills the worker with the process id `id`.
    fn kill(&mut self, id: &str) -> Result<(), Box<dyn Error>> {
        let place = self.workers.iter().position(|worker| worker.id() == id);
        drop(self.workers.remove(place.ok_or("no such worker")?));
        Ok(())
    }
}

/// Prints the stalls after kills of workers.
pub(crate) async fn after_kills(dir: &Path) -> Result<(), Box<dyn Error>> {
    let stalls = at_the_head(dir).await?;
    report(
        "the lease at the head is lost, and results fill the window behind it",
        stalls,
    );
    let stalls = slow_reader(dir).await?;
    report(
        "a worker is lost while a slow reader leaves all buffers full",
        stalls,
    );
    Ok(())
}

fn report(what: &str, stalls: Vec<Duration>) {
    let worst = stalls.iter().max().copied().unwrap_or_default();
    let count = stalls.len();
    println!(
        "{what}: {count} kills, stall {:.0} ms in the median, {:.0} ms at worst",
        millis(median(stalls)),
        millis(worst)
    );
}

/// Segments that take some time. Their workers write their process ids to files.
#[derive(Debug, Clone)]
struct PausingSegments {
    dir: PathBuf,
}

#[derive(Debug, Clone, Copy)]
struct PausingSegment {
    number: u64,
}

impl PausingSegment {
    const fn time(self) -> Duration {
        if self.number % PERIOD == PERIOD - 1 {
            LONG
        } else {
            SHORT
        }
    }
}

#[derive(Debug)]
struct ResultBytes;

impl ByteSize for ResultBytes {
    fn bytes(&self) -> u64 {
        BYTES
    }
}

impl PausingSegments {
    /// Returns the file with the process id of the worker that began with a segment last.
    fn file(&self, number: u64) -> PathBuf {
        self.dir.join(number.to_string())
    }
}

impl LeaseCodec for PausingSegments {
    type Output = ResultBytes;
    type Segment = PausingSegment;

    fn encode(&self, segments: &[LeaseSegment<PausingSegment>]) -> Bytes {
        let of = segments.first().map(|segment| segment.name);
        let (number, time) = of.map_or((0, SHORT), |of| (of.number, of.time()));
        pause(BYTES, time, &self.file(number))
    }

    fn decode(
        &self,
        segments: &[LeaseSegment<PausingSegment>],
        _: LeaseOutput,
    ) -> Result<LeaseResults<ResultBytes>, String> {
        Ok(LeaseResults {
            segments: segments.iter().map(|_| ResultBytes).collect(),
            took: segments.iter().map(|segment| segment.name.time()).sum(),
        })
    }
}

/// Kills the worker of the lease at the head of the stream, as soon as the results behind it fill the window.
async fn at_the_head(dir: &Path) -> Result<Vec<Duration>, Box<dyn Error>> {
    let mut workers = Workers::start().await?;
    let segments = stream::iter(0..).map(|number| {
        let name = PausingSegment { number };
        SegmentInfo {
            name,
            bytes: BYTES,
            work: name.time(),
            affinity: number,
            staged: StagedData::default(),
            rows: 1,
            is_divisible: false,
        }
    });
    let codec = PausingSegments {
        dir: dir.to_owned(),
    };
    let (files, settings) = (codec.clone(), settings());
    let limit = settings.limit();
    let engine = Arc::clone(&workers.engine) as Arc<dyn LeaseEngine>;
    let mut results = driver::run(engine, segments, codec, settings);
    let (mut stalls, mut next) = (Vec::new(), 0);
    while stalls.len() < KILLS {
        let head = PausingSegment { number: next };
        if head.time() == LONG {
            // The stream is polled, so that it receives the results behind the head.
            while let Err(_elapsed) =
                tokio::time::timeout(Duration::from_millis(1), results.next()).await
            {
                let status = results.status();
                if status.attempts == 1 && status.used_bytes + BYTES > limit {
                    workers.kill(std::fs::read_to_string(files.file(next))?.trim())?;
                    let killed = Instant::now();
                    results.next().await.ok_or("the stream ended")??;
                    stalls.push(killed.elapsed().saturating_sub(LONG));
                    break;
                }
            }
        } else {
            results.next().await.ok_or("the stream ended")??;
        }
        next += 1;
        workers.complete().await?;
    }
    Ok(stalls)
}

/// Kills one worker after the other while a pipeline's reader pauses. Then the reader goes on as fast as it can, and its
/// longest wait counts. A lease takes about 50 ms, which are not subtracted.
async fn slow_reader(dir: &Path) -> Result<Vec<Duration>, Box<dyn Error>> {
    const BATCH: u64 = 512;
    /// Time in which the buffers become full.
    const FILL: Duration = Duration::from_secs(2);
    let file = dir.join("slow.parquet");
    let table = Table {
        rows: 200_000,
        payload: 1_000,
        seed: 1,
    };
    table.write(&file, &|_| ())?;
    let mut workers = Workers::start().await?;
    let engine = Arc::clone(&workers.engine) as Arc<dyn LeaseEngine>;
    let settings = WindowSettings {
        max_bytes: 32 << 20,
        ..WindowSettings::default()
    };
    let session = Session::on_cluster(Cluster::new(engine, settings));
    session
        .execute(&format!(
            "CREATE PIPELINE p AS SELECT id, sha256(payload) AS hash, payload FROM parquet('{}') AS t
             SHUFFLE WITHIN 10000 ROWS SEED 1 BATCH {BATCH} REPEAT",
            file.display()
        ))
        .await?;
    let mut run = session.run("p", RunConfig::default()).await?;
    let mut stalls = Vec::new();
    while stalls.len() < KILLS {
        run.next().await.ok_or("the stream ended")??;
        tokio::time::sleep(FILL).await;
        let victim = workers.workers[stalls.len() % WORKERS].id();
        workers.kill(&victim)?;
        let mut longest = Duration::ZERO;
        // More rows than all buffers hold.
        for _ in 0..(64 << 20) / (BATCH * 1_000) {
            let asked = Instant::now();
            run.next().await.ok_or("the stream ended")??;
            longest = longest.max(asked.elapsed());
        }
        stalls.push(longest);
        workers.complete().await?;
    }
    Ok(stalls)
}
