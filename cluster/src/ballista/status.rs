//! Status of a cluster: what `forebay status` shows.

use serde::{Deserialize, Serialize};

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
    /// Latest incidents that did not fail a lease, such as a lost process of a Python function.
    pub events: Vec<String>,
    /// Reasons why the scheduler or a client gives no leases to it.
    pub set_aside: Vec<String>,
}
