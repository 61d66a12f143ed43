//! Benchmarks of the engine on tables. The measurements of all contenders alternate in one process.
//!
//! `cargo run --release -p forebay-benches` prints medians and ratios. `benches/README.md` lists
//! the measured values. With an argument, one question is answered: `planning` (planning times), `cutting` (the speed at
//! which segments of a large data set are named), `leases` (what a cluster costs; with `--features cluster`), or `stalls`
//! (the waits after workers are killed; with `--features cluster`).

#![expect(clippy::print_stdout, reason = "a program whose output is its answer")]

mod cutting;
#[cfg(feature = "cluster")]
mod flight;
#[cfg(feature = "cluster")]
mod leases;
mod planning;
#[cfg(feature = "cluster")]
mod process;
#[cfg(feature = "cluster")]
mod stalls;

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use forebay::generate::Table;
use forebay::{RunConfig, RunInternals, Session};
use futures::StreamExt;

/// Number of measurements of each contender; medians are compared.
const RUNS: usize = 21;
const ROWS: u64 = 200_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => {}
        ["planning"] => return planning::times(dir.path()).await,
        ["cutting"] => return cutting::speeds().await,
        #[cfg(feature = "cluster")]
        ["leases"] => return leases::costs(dir.path()).await,
        #[cfg(feature = "cluster")]
        ["stalls"] => return stalls::after_kills(dir.path()).await,
        #[cfg(feature = "cluster")]
        ["leases", "scheduler"] => return process::scheduler().await,
        #[cfg(feature = "cluster")]
        ["leases", "worker", scheduler] => return process::worker(scheduler).await,
        #[cfg(feature = "cluster")]
        ["leases", "flight"] => return flight::serve().await,
        _ => return Err(format!("unknown arguments: {}", arguments.join(" ")).into()),
    }
    let file = dir.path().join("rows.parquet");
    Table {
        rows: ROWS,
        payload: 0,
        seed: 1,
    }
    .write(&file, &|_| ())?;
    for threads in [1, 2] {
        shuffle_against_sort(&file, threads).await?;
    }
    segments(&file).await?;
    Ok(())
}

/// Measures a pipeline (filter, arithmetic, shuffle, batches of 1024 rows) against a DataFusion
/// query with the same filter and arithmetic and a sort by a hash column.
async fn shuffle_against_sort(file: &Path, threads: usize) -> Result<(), Box<dyn Error>> {
    let session = Session::new();
    let path = file.display();
    session
        .execute(&format!(
            "CREATE PIPELINE p AS SELECT id, price * 2.0 + clicks AS v FROM parquet('{path}')
             WHERE clicks > 1 SHUFFLE GLOBALLY BATCH 1024"
        ))
        .await?;
    let (mut ours, mut theirs, mut rows) = (Vec::new(), Vec::new(), (0, 0));
    for _ in 0..RUNS {
        let start = Instant::now();
        let config = RunConfig {
            threads: Some(threads),
            ..RunConfig::default()
        };
        let mut run = session.run("p", config).await?;
        rows.0 = 0;
        while let Some(batch) = run.next().await {
            rows.0 += batch?.batch.num_rows();
        }
        ours.push(start.elapsed());

        let start = Instant::now();
        let ctx = SessionContext::new_with_config(
            SessionConfig::new()
                .with_target_partitions(threads)
                .with_batch_size(1024),
        );
        ctx.register_parquet("t", path.to_string(), ParquetReadOptions::default())
            .await?;
        let frame = ctx
            .sql(
                "SELECT id, price * 2.0 + clicks AS v FROM t WHERE clicks > 1
                 ORDER BY id * 2654435761 % 4294967296",
            )
            .await?;
        let mut stream = frame.execute_stream().await?;
        rows.1 = 0;
        while let Some(batch) = stream.next().await {
            rows.1 += batch?.num_rows();
        }
        theirs.push(start.elapsed());
    }
    if rows.0 != rows.1 {
        return Err(format!("{} rows against {}", rows.0, rows.1).into());
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!(
        "shuffle_against_sort, {threads} thread(s), {} rows out: forebay {:.1} ms, DataFusion {:.1} ms, \
         speed ratio {:.2}",
        rows.0,
        millis(ours),
        millis(theirs),
        theirs.as_secs_f64() / ours.as_secs_f64()
    );
    Ok(())
}

/// Measures the overhead of a segment: the time of 10,000 segments of one row, minus the time of
/// the same rows as one segment.
async fn segments(file: &Path) -> Result<(), Box<dyn Error>> {
    let session = Session::new();
    session
        .execute(&format!(
            "CREATE PIPELINE p AS SELECT id, price * 2.0 AS v FROM parquet('{}')
             SHUFFLE WITHIN 10000 ROWS TAKE 10000 BATCH 100",
            file.display()
        ))
        .await?;
    let (mut single, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        for (rows, times) in [(1, &mut single), (10_000, &mut whole)] {
            let config = RunConfig {
                threads: Some(1),
                internals: RunInternals {
                    segment_rows: Some(rows),
                    ..RunInternals::default()
                },
                ..RunConfig::default()
            };
            let start = Instant::now();
            let mut run = session.run("p", config).await?;
            while let Some(batch) = run.next().await {
                batch?;
            }
            times.push(start.elapsed());
        }
    }
    let (single, whole) = (median(single), median(whole));
    println!(
        "segments: 10,000 of one row {:.1} ms, as one {:.1} ms, {:.1} us a segment",
        millis(single),
        millis(whole),
        single.saturating_sub(whole).as_secs_f64() * 1e6 / 1e4
    );
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns a field of the kernel's description of a process, in megabytes.
fn megabytes(process: &str, field: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = { status.lines() }.find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
    Ok(number.ok_or("no such field")?.parse::<u64>()? >> 10)
}
