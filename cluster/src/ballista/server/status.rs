//! The scheduler's status of the cluster.

use std::time::Instant;

use super::board::{RegisteredWorker, WorkerNote};
use super::context::SchedulerContext;
use super::watch::WorkerState;
use crate::ballista::connection::authority;
use crate::ballista::status::{ClientStatus, ClusterStatus, WorkerStatus};
use crate::ballista::wire::ClientReport;
use crate::job_spec::RELEASE;

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
        events,
    } = note.state;
    WorkerStatus {
        address: authority(&address.host, address.port),
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
        events,
        set_aside,
    }
}
