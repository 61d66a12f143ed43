//! Status of a cluster: what `forebay status` shows.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::board::{RegisteredWorker, WorkerNote};
use super::context::SchedulerContext;
use super::wire::{ClientReport, WorkerState};
use crate::job_spec::RELEASE;

/// Status of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Release of the scheduler.
    pub release: String,
    /// Seconds since the scheduler started.
    pub uptime_seconds: f64,
    /// Number of jobs that clients run.
    pub jobs: usize,
    /// Number of blobs that the scheduler stores.
    pub blobs: usize,
    /// Bytes of these blobs.
    pub blob_bytes: u64,
    /// Clients that run pipelines.
    pub clients: Vec<ClientStatus>,
    /// Workers.
    pub workers: Vec<WorkerStatus>,
}

/// Status of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Name of the client.
    pub client: String,
    /// Release of the client.
    pub release: String,
    /// Hashes of the jobs that it runs.
    pub jobs: Vec<String>,
    /// Rows that workers have computed for it.
    pub rows: u64,
    /// Rows for each second of the last report's time.
    pub rows_per_second: f64,
    /// Share of this time for which it waited for workers, from 0 to 1.
    pub wait_share: f64,
    /// Leases without results.
    pub leases: u64,
    /// Attempts to compute leases that run.
    pub leases_in_flight: u64,
    /// Bytes that are reserved for leases or held in results.
    pub buffer_bytes: u64,
    /// Bound of these bytes.
    pub buffer_limit_bytes: u64,
}

/// Status of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Name of the worker.
    pub worker: String,
    /// Host and port of the worker.
    pub address: String,
    /// Release of the worker.
    pub release: String,
    /// `true` if leases are given to it.
    pub is_ready: bool,
    /// Number of leases that can run at the same time.
    pub slots: u64,
    /// Number of leases that run.
    pub busy: u64,
    /// Leases that it has computed.
    pub leases: u64,
    /// Rows that it has computed.
    pub rows: u64,
    /// Resident memory of its process in bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// Bytes of results that clients have not fetched.
    pub buffer_bytes: u64,
    /// Bound of these bytes.
    pub buffer_limit_bytes: u64,
    /// Jobs that are open.
    pub open_jobs: u64,
    /// Leases that found their job open.
    pub job_hits: u64,
    /// Leases that had to open their job.
    pub job_misses: u64,
    /// Reasons why the scheduler or a client gives no leases to it.
    pub set_aside: Vec<String>,
}

/// Returns the status of the cluster of `context`, which stores `blobs` of `blob_bytes`.
pub(crate) fn status(
    context: &SchedulerContext,
    (blobs, blob_bytes): (usize, u64),
) -> ClusterStatus {
    let reports = context.clients.reports(Instant::now());
    let mut jobs: Vec<&String> = reports.iter().flat_map(|report| &report.jobs).collect();
    jobs.sort_unstable();
    jobs.dedup();
    let workers = context.board.workers().borrow().clone();
    ClusterStatus {
        release: RELEASE.to_owned(),
        uptime_seconds: context.started.elapsed().as_secs_f64(),
        jobs: jobs.len(),
        blobs,
        blob_bytes,
        workers: workers
            .into_values()
            .map(|worker| {
                let note = context.board.note(worker.registration);
                worker_status(worker, note, &reports)
            })
            .collect(),
        clients: reports.into_iter().map(client_status).collect(),
    }
}

fn client_status(report: ClientReport) -> ClientStatus {
    ClientStatus {
        client: report.client,
        release: report.release,
        jobs: report.jobs,
        rows: report.rows,
        rows_per_second: report.rows_per_second,
        wait_share: report.wait_share,
        leases: report.leases,
        leases_in_flight: report.attempts,
        buffer_bytes: report.buffer_bytes,
        buffer_limit_bytes: report.buffer_limit,
    }
}

fn worker_status(
    worker: RegisteredWorker,
    note: WorkerNote,
    reports: &[ClientReport],
) -> WorkerStatus {
    let RegisteredWorker {
        address,
        is_watched,
        ..
    } = worker;
    let of_clients = reports.iter().flat_map(|report| &report.set_aside);
    let of_clients = of_clients.filter(|aside| aside.worker == address.id);
    let mut set_aside: Vec<String> = note.refused.into_iter().collect();
    set_aside.extend(of_clients.map(|aside| aside.cause.clone()));
    set_aside.dedup();
    let WorkerState {
        release,
        slots,
        busy,
        leases,
        rows,
        memory_bytes,
        buffer_bytes,
        buffer_limit,
        open_jobs,
        job_hits,
        job_misses,
    } = note.state;
    WorkerStatus {
        address: super::connection::authority(&address.host, address.port),
        worker: address.id,
        release,
        is_ready: is_watched,
        slots,
        busy,
        leases,
        rows,
        memory_bytes,
        buffer_bytes,
        buffer_limit_bytes: buffer_limit,
        open_jobs,
        job_hits,
        job_misses,
        set_aside,
    }
}
