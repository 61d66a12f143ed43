//! `forebay status`: clients, jobs and workers of a cluster.

use std::time::Duration;

use forebay_cluster::ballista::{BallistaEngine, ClientStatus, ClusterStatus, WorkerStatus};
use forebay_cluster::engine::EngineError;

use super::access_args::StatusArgs;
use super::failure::CommandFailure;
use super::units::{bytes, count, counted, printable};
use super::{console, table};

/// Characters of a job's hash that are shown.
const HASH_CHARACTERS: usize = 12;

/// Number of times that a scheduler is asked, and the time in between.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// Shows the status of a cluster.
pub(crate) async fn execute(args: StatusArgs) -> Result<(), CommandFailure> {
    let engine = args.security.access().engine(&args.cluster);
    let engine = engine.map_err(|error| CommandFailure::Usage(error.to_string()))?;
    let status = ask(&engine).await;
    let status = status.map_err(|error| CommandFailure::Run(error.to_string()))?;
    if args.json {
        let json = serde_json::to_value(&status);
        console::json(&json.map_err(|error| CommandFailure::Run(error.to_string()))?)
    } else {
        // Other processes chose their names and reasons.
        console::data(&printable(&text(&args.cluster, &status)))
    }
}

/// Asks a scheduler for the status of its cluster. A scheduler that refuses the connection may close
/// it before its reason has arrived, so it is asked again.
async fn ask(engine: &BallistaEngine) -> Result<ClusterStatus, EngineError> {
    for _ in 1..TRIES {
        match engine.status().await {
            Err(EngineError::Unavailable { .. }) => tokio::time::sleep(PAUSE).await,
            answer => return answer,
        }
    }
    engine.status().await
}

fn text(address: &str, status: &ClusterStatus) -> String {
    let mut text = format!(
        "scheduler {address}: release {}, up {:.0} s, {}, {}, {} in {}\n",
        status.release,
        status.uptime_seconds,
        counted(status.clients.len() as u64, "client", "clients"),
        counted(status.jobs as u64, "job", "jobs"),
        bytes(status.blob_bytes),
        counted(status.blobs as u64, "blob", "blobs"),
    );
    if !status.clients.is_empty() {
        let header = [
            "client", "job", "rows", "rows/s", "waits", "leases", "running", "buffer",
        ];
        let rows = status.clients.iter().map(client).collect();
        text.push('\n');
        text.push_str(&table::aligned(&header.map(str::to_owned), rows));
    }
    if !status.workers.is_empty() {
        let header = [
            "worker", "address", "state", "busy", "leases", "rows", "memory", "results", "jobs",
        ];
        let rows = status.workers.iter().map(worker).collect();
        text.push('\n');
        text.push_str(&table::aligned(&header.map(str::to_owned), rows));
    }
    for worker in &status.workers {
        for cause in &worker.set_aside {
            text.push_str(&format!("\n{} is set aside: {cause}\n", worker.worker));
        }
        for event in &worker.events {
            text.push_str(&format!("\n{}: {event}\n", worker.worker));
        }
    }
    text
}

/// Returns the cells of a client.
fn client(client: &ClientStatus) -> [String; 8] {
    let jobs = client
        .jobs
        .iter()
        .map(|job| job.chars().take(HASH_CHARACTERS).collect());
    [
        client.client.clone(),
        jobs.collect::<Vec<String>>().join(","),
        count(client.rows),
        format!("{:.0}", client.rows_per_second),
        format!("{:.0} %", 100.0 * client.wait_share),
        count(client.leases),
        count(client.leases_in_flight),
        part(client.buffer_bytes, client.buffer_limit_bytes),
    ]
}

/// Returns the cells of a worker.
fn worker(worker: &WorkerStatus) -> [String; 9] {
    let state = match (worker.set_aside.is_empty(), worker.is_ready) {
        (false, _) => "set aside",
        (true, true) => "ready",
        (true, false) => "joins",
    };
    [
        worker.worker.clone(),
        worker.address.clone(),
        state.to_owned(),
        format!("{} of {}", worker.busy, worker.slots),
        count(worker.leases),
        count(worker.rows),
        bytes(worker.memory_bytes),
        part(worker.buffer_bytes, worker.buffer_limit_bytes),
        count(worker.open_jobs),
    ]
}

/// Formats bytes and their limit.
fn part(used: u64, limit: u64) -> String {
    format!("{} of {}", bytes(used), bytes(limit))
}
