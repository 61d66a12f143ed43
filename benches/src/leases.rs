//! Costs of a cluster: of large leases against a bare Flight server, of small leases against jobs
//! without a window, of many segments and of the first batch against one process, the memory that many
//! leases leave behind, and leases over a million files.
//!
//! Scheduler, worker and Flight server are processes of their own. Contenders alternate.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightClient, Ticket};
use bytes::Bytes;
use forebay::generate::Table;
use forebay::{RunConfig, RunInternals, Session};
use forebay_cluster::ballista::{BallistaEngine, EngineOptions};
use forebay_cluster::codec::{LeaseCodec, LeaseResults};
use forebay_cluster::driver;
use forebay_cluster::engine::{LeaseEngine, LeaseOutput, LeaseRequest, LeaseStaging};
use forebay_cluster::window::{ByteSize, LeaseSegment, SegmentInfo, StagedData};
use forebay_cluster::{Cluster, WindowSettings};
use futures::{StreamExt, TryStreamExt, stream};
use tonic::transport::Endpoint;

use crate::process::{IDLE, Process, cpu_of};
use crate::{median, megabytes, millis};

/// Leases in flight: the default of a window for one worker.
const IN_FLIGHT: usize = 4;
const ROUNDS: usize = 5;
const LARGE: usize = 16 << 20;

/// A segment whose result has a number of bytes, and takes no work.
#[derive(Debug, Clone, Copy)]
struct IdleSegments;

/// Bytes of the result of a segment.
#[derive(Debug)]
struct ResultBytes(u64);

impl ByteSize for ResultBytes {
    fn bytes(&self) -> u64 {
        self.0
    }
}

fn payload(bytes: usize) -> Bytes {
    Bytes::from([IDLE, bytes.to_string().as_bytes()].concat())
}

impl LeaseCodec for IdleSegments {
    type Output = ResultBytes;
    type Segment = usize;

    fn encode(&self, segments: &[LeaseSegment<usize>]) -> Bytes {
        payload(segments.iter().map(|segment| segment.name).sum())
    }

    fn decode(
        &self,
        segments: &[LeaseSegment<usize>],
        output: LeaseOutput,
    ) -> Result<LeaseResults<ResultBytes>, String> {
        let bytes = output
            .batches
            .iter()
            .map(|batch| batch.get_array_memory_size() as u64);
        let (bytes, count) = (bytes.sum::<u64>(), segments.len() as u64);
        Ok(LeaseResults {
            segments: segments
                .iter()
                .map(|_| ResultBytes(bytes / count.max(1)))
                .collect(),
            took: Duration::ZERO,
        })
    }
}

/// The processes of a cluster with one worker, and this process's client.
struct Bench {
    scheduler: Process,
    worker: Process,
    engine: Arc<BallistaEngine>,
}

/// Time and CPU time of some work.
#[derive(Debug, Clone, Copy)]
struct Cost {
    time: Duration,
    /// Seconds of CPU of all processes that took part.
    cpu: f64,
    /// Seconds of CPU of the scheduler.
    scheduler: f64,
}

impl Bench {
    async fn start() -> Result<Self, Box<dyn Error>> {
        let scheduler = Process::start(&["leases", "scheduler"])?;
        let worker = Process::start(&["leases", "worker", &scheduler.address])?;
        let engine = BallistaEngine::new(&EngineOptions::new(&scheduler.address))?;
        while engine.workers().await.map_or(0, |workers| workers.len()) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(Self {
            scheduler,
            worker,
            engine: Arc::new(engine),
        })
    }

    fn engine(&self) -> Arc<dyn LeaseEngine> {
        Arc::clone(&self.engine) as Arc<dyn LeaseEngine>
    }

    /// Runs `count` leases with results of `bytes` bytes through a window.
    async fn through_window(&self, count: usize, bytes: usize) -> Result<(), Box<dyn Error>> {
        let segment = SegmentInfo {
            name: bytes,
            bytes: bytes.max(1) as u64,
            work: Duration::ZERO,
            affinity: 0,
            staged: StagedData::default(),
            rows: 1,
            is_divisible: false,
        };
        let segments = stream::iter(vec![segment; count]);
        let settings = WindowSettings {
            max_lease_segments: 1,
            leases_per_worker: IN_FLIGHT,
            ..WindowSettings::default()
        };
        let results = driver::run(self.engine(), segments, IdleSegments, settings);
        let done = results
            .try_fold(0, |done, _| async move { Ok(done + 1) })
            .await?;
        if done == count {
            Ok(())
        } else {
            Err(format!("{done} of {count} leases").into())
        }
    }

    /// Submits `count` leases without rows as jobs, `in_flight` at a time, without a window.
    async fn as_jobs(&self, count: usize, in_flight: usize) -> Result<(), Box<dyn Error>> {
        let jobs = (0..count as u64).map(|order| {
            self.engine.submit(LeaseRequest {
                payload: payload(0),
                affinity: 0,
                staging: LeaseStaging::default(),
                order,
                avoid: Vec::new(),
            })
        });
        let mut jobs = stream::iter(jobs).buffered(in_flight);
        while let Some(job) = jobs.next().await {
            job?;
        }
        Ok(())
    }

    /// Measures `work`, in which this process and `others` take part.
    async fn measure(
        &self,
        others: &[&Process],
        work: impl Future<Output = Result<(), Box<dyn Error>>>,
    ) -> Result<Cost, Box<dyn Error>> {
        let cpu = || -> Result<(f64, f64), Box<dyn Error>> {
            let mut all = cpu_of("self")?;
            for process in others {
                all += process.cpu()?;
            }
            Ok((all, self.scheduler.cpu()?))
        };
        let (before, scheduler) = cpu()?;
        let start = Instant::now();
        work.await?;
        let time = start.elapsed();
        let (after, scheduler_after) = cpu()?;
        Ok(Cost {
            time,
            cpu: after - before,
            scheduler: scheduler_after - scheduler,
        })
    }
}

/// Prints all costs.
pub(crate) async fn costs(dir: &Path) -> Result<(), Box<dyn Error>> {
    let bench = Bench::start().await?;
    large(&bench).await?;
    small(&bench).await?;
    one_row(&bench, dir).await?;
    first_batch(&bench, dir).await?;
    flat(&bench).await?;
    many_files(&bench, dir).await
}

/// Measures leases of 16 MiB against the same bytes from a bare Flight server.
async fn large(bench: &Bench) -> Result<(), Box<dyn Error>> {
    const COUNT: usize = 200;
    let server = Process::start(&["leases", "flight"])?;
    let channel = Endpoint::from_shared(format!("http://{}", server.address))?
        .tcp_nodelay(true)
        .connect()
        .await?;
    let fetch = || async {
        let fetches = (0..COUNT).map(|_| {
            let inner =
                FlightServiceClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
            let mut client = FlightClient::new_from_inner(inner);
            async move {
                let ticket = Ticket::new(LARGE.to_string());
                let rows = client.do_get(ticket).await?;
                rows.try_fold(0, |rows, batch| async move { Ok(rows + batch.num_rows()) })
                    .await
            }
        });
        let mut fetches = stream::iter(fetches).buffered(IN_FLIGHT);
        while let Some(rows) = fetches.next().await {
            if rows? == 0 {
                return Err("no rows".into());
            }
        }
        Ok(())
    };
    let (mut rates, mut cpus) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let bare = bench.measure(&[&server], fetch()).await?;
        let ours = bench
            .measure(
                &[&bench.scheduler, &bench.worker],
                bench.through_window(COUNT, LARGE),
            )
            .await?;
        // The first round warms up.
        if round > 0 {
            rates.push(bare.time.as_secs_f64() / ours.time.as_secs_f64());
            cpus.push(ours.cpu / bare.cpu);
        }
        let gigabytes = (COUNT * LARGE) as f64 / 1e9;
        println!(
            "16 MiB leases: {:.2} GB/s, {:.2} CPU s/GB; bare Flight: {:.2} GB/s, {:.2} CPU s/GB",
            gigabytes / ours.time.as_secs_f64(),
            ours.cpu / gigabytes,
            gigabytes / bare.time.as_secs_f64(),
            bare.cpu / gigabytes,
        );
    }
    println!(
        "16 MiB leases against bare Flight: {} of the rate, {} of the CPU",
        range(rates),
        range(cpus)
    );
    Ok(())
}

/// Measures leases without rows against jobs without a window.
async fn small(bench: &Bench) -> Result<(), Box<dyn Error>> {
    const COUNT: usize = 3_000;
    let (mut rates, mut cpu) = (Vec::new(), Vec::new());
    let processes = [&bench.scheduler, &bench.worker];
    for round in 0..=ROUNDS {
        let jobs = bench
            .measure(&processes, bench.as_jobs(COUNT, IN_FLIGHT))
            .await?;
        let leases = bench
            .measure(&processes, bench.through_window(COUNT, 0))
            .await?;
        if round > 0 {
            rates.push(jobs.time.as_secs_f64() / leases.time.as_secs_f64());
            cpu.push(leases.scheduler / COUNT as f64 * 1e3);
        }
        println!(
            "small leases: {:.0}/s; jobs: {:.0}/s",
            COUNT as f64 / leases.time.as_secs_f64(),
            COUNT as f64 / jobs.time.as_secs_f64(),
        );
    }
    println!(
        "small leases against jobs: {} of the rate; {} ms of the scheduler's CPU each",
        range(rates),
        range(cpu)
    );
    Ok(())
}

/// Runs pipeline `p` of `session` with segments of `segment_rows` rows, and returns the times to the first batch and to the end.
async fn run(
    session: &Session,
    segment_rows: Option<u64>,
) -> Result<(Duration, Duration), Box<dyn Error>> {
    let config = RunConfig {
        internals: RunInternals {
            segment_rows,
            ..RunInternals::default()
        },
        ..RunConfig::default()
    };
    let start = Instant::now();
    let mut run = session.run("p", config).await?;
    let mut first = None;
    while let Some(batch) = run.next().await {
        batch?;
        first.get_or_insert_with(|| start.elapsed());
    }
    Ok((first.ok_or("no batch")?, start.elapsed()))
}

/// Creates a session in this process, and one on the cluster, with a pipeline `p`.
async fn sessions(bench: &Bench, sql: &str) -> Result<[Session; 2], Box<dyn Error>> {
    let cluster = Cluster::new(bench.engine(), WindowSettings::default());
    let both = [Session::new(), Session::on_cluster(cluster)];
    for session in &both {
        session.execute(sql).await?;
    }
    Ok(both)
}

/// Measures 100,000 segments of one row against this process.
async fn one_row(bench: &Bench, dir: &Path) -> Result<(), Box<dyn Error>> {
    let file = dir.join("many.parquet");
    let table = Table {
        rows: 100_000,
        payload: 0,
        seed: 1,
    };
    table.write(&file, &|_| ())?;
    let sql = format!(
        "CREATE PIPELINE p AS SELECT id, price * 2.0 AS v FROM parquet('{}') SHUFFLE WITHIN 10000 ROWS BATCH 100",
        file.display()
    );
    let [local, remote] = sessions(bench, &sql).await?;
    let mut rates = Vec::new();
    for round in 0..=ROUNDS {
        let (_, here) = run(&local, Some(1)).await?;
        let (_, there) = run(&remote, Some(1)).await?;
        if round > 0 {
            rates.push(here.as_secs_f64() / there.as_secs_f64());
        }
        println!(
            "100,000 segments of one row: {:.0} ms, in one process {:.0} ms",
            millis(there),
            millis(here)
        );
    }
    println!(
        "100,000 segments of one row against one process: {} of the rate",
        range(rates)
    );
    Ok(())
}

/// Measures the first batch on a warm worker against this process.
async fn first_batch(bench: &Bench, dir: &Path) -> Result<(), Box<dyn Error>> {
    let file = dir.join("many.parquet");
    let sql = format!(
        "CREATE PIPELINE p AS SELECT id, price * 2.0 AS v FROM parquet('{}') SHUFFLE WITHIN 10000 ROWS TAKE 1024 BATCH 256",
        file.display()
    );
    let [local, remote] = sessions(bench, &sql).await?;
    run(&remote, None).await?;
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for _ in 0..3 * ROUNDS {
        here.push(run(&local, None).await?.0);
        there.push(run(&remote, None).await?.0);
    }
    let (here, there) = (median(here), median(there));
    println!(
        "first batch on a warm worker: {:.1} ms, in one process {:.1} ms",
        millis(there),
        millis(here)
    );
    Ok(())
}

/// Prints memory, threads and files of the processes while 20,000 leases run.
async fn flat(bench: &Bench) -> Result<(), Box<dyn Error>> {
    for round in 0..=5 {
        if round > 0 {
            bench.through_window(4_000, 0).await?;
        }
        let usage = |process: &str| -> Result<String, Box<dyn Error>> {
            let count = |what: &str| {
                Ok::<_, std::io::Error>(
                    std::fs::read_dir(format!("/proc/{process}/{what}"))?.count(),
                )
            };
            Ok(format!(
                "{} MB, {} threads, {} files",
                megabytes(process, "VmRSS")?,
                count("task")?,
                count("fd")?
            ))
        };
        println!(
            "after {} leases: scheduler {}; worker {}; client {}",
            4_000 * round,
            usage(&bench.scheduler.id())?,
            usage(&bench.worker.id())?,
            usage("self")?,
        );
    }
    Ok(())
}

/// Measures leases of one row, one after the other, over a thousand and over a million files, against
/// jobs of the same engine that take no work.
async fn many_files(bench: &Bench, dir: &Path) -> Result<(), Box<dyn Error>> {
    const LEASES: usize = 1_000;
    let settings = WindowSettings {
        max_lease_segments: 1,
        leases_per_worker: 1,
        ..WindowSettings::default()
    };
    let cluster = Cluster::new(bench.engine(), settings);
    for files in [1_000, 1_000_000] {
        let folder = dir.join(format!("{files} files"));
        for class in 0..files / 1_000 {
            let class = folder.join(class.to_string());
            std::fs::create_dir_all(&class)?;
            for file in 0..1_000 {
                std::fs::write(class.join(format!("{file}.jpg")), b"x")?;
            }
        }
        let session = Session::on_cluster(cluster.clone());
        session
            .execute(&format!(
                "CREATE PIPELINE p AS SELECT label FROM images('{}') SHUFFLE GLOBALLY TAKE {LEASES} BATCH 1",
                folder.display()
            ))
            .await?;
        let (mut times, mut idle) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let start = Instant::now();
            bench.as_jobs(LEASES, 1).await?;
            let jobs = start.elapsed();
            let (first, all) = run(&session, Some(1)).await?;
            // The worker opens the job in the first round.
            if round > 0 {
                times.push(millis(all - first) / (LEASES - 1) as f64);
                idle.push(millis(jobs) / LEASES as f64);
            }
            println!(
                "{files} files: first batch after {:.0} ms, {LEASES} leases {:.0} ms, {LEASES} jobs {:.0} ms",
                millis(first),
                millis(all),
                millis(jobs)
            );
        }
        println!(
            "a warm lease over {files} files: {} ms; a job without work: {} ms",
            range(times),
            range(idle)
        );
    }
    Ok(())
}

/// Returns the median of some numbers, with the smallest and the largest.
fn range(mut numbers: Vec<f64>) -> String {
    numbers.sort_by(f64::total_cmp);
    match numbers[..] {
        [] => "none".to_owned(),
        [one] => format!("{one:.2}"),
        [first, .., last] => format!(
            "{:.2} ({first:.2} to {last:.2})",
            numbers[numbers.len() / 2]
        ),
    }
}
