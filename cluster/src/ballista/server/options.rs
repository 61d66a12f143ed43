//! Options of a scheduler and of a worker.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::ballista::Security;

/// Options of a [`Scheduler`](super::Scheduler).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SchedulerOptions {
    /// The address to listen on. Port 0 is any free port.
    pub listen: SocketAddr,
    /// The host under which workers reach the scheduler; `None` if it is that of `listen`.
    pub advertise: Option<String>,
    /// Access to the cluster.
    pub security: Security,
    /// Bytes of all blobs. Blobs that were not used for longest make room for new ones.
    pub blob_capacity: usize,
    /// Bytes of one blob.
    pub max_blob: usize,
    /// Time without a heartbeat after which a worker is removed, in whole seconds. Workers send one
    /// every second.
    pub worker_timeout: Duration,
    /// Number of threads. Ballista's scheduler holds a lock that blocks threads while it waits for
    /// another one (`TaskManager::executor_lost`), so few threads could all be blocked.
    pub threads: usize,
}

impl SchedulerOptions {
    /// Returns the options of a scheduler that listens on `listen`.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            advertise: None,
            security: Security::default(),
            blob_capacity: 1 << 30,
            max_blob: 256 << 20,
            worker_timeout: Duration::from_secs(3),
            threads: std::thread::available_parallelism()
                .map_or(8, usize::from)
                .max(8),
        }
    }
}

/// Options of a [`Worker`](super::Worker).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkerOptions {
    /// Address of the scheduler, as host and port.
    pub scheduler: String,
    /// Number of leases that run at the same time.
    pub slots: usize,
    /// The address to listen on, for results. Port 0 is any free port. Tasks
    /// arrive there too.
    pub listen: SocketAddr,
    /// The host under which the scheduler and clients reach the worker; `None` if it is that of
    /// `listen`.
    pub advertise: Option<String>,
    /// Access to the cluster.
    pub security: Security,
    /// Address of the probes and of the metrics over HTTP; `None` for none. Port 0 is any free
    /// port. They are not encrypted on a loopback address.
    pub http_listen: Option<SocketAddr>,
    /// Bytes of the results that clients have not fetched yet. Leases wait where it is full.
    pub result_capacity: usize,
    /// Time after which a result that nobody fetched is dropped.
    pub result_timeout: Duration,
    /// Bytes of one blob that the worker accepts.
    pub max_blob: usize,
    /// Bytes of memory for jobs other than leases; `None` does not limit them.
    pub memory_limit: Option<usize>,
    /// Folder for data of jobs other than leases; `None` is the system's temporary folder. The
    /// worker creates a folder of its own there when such a job runs, and removes it at its end.
    pub work_dir: Option<PathBuf>,
    /// Number of threads for connections. Leases have one thread for each slot besides.
    pub threads: usize,
}

impl WorkerOptions {
    /// Returns the options of a worker of the scheduler at `scheduler`, on this machine only.
    pub fn new(scheduler: impl Into<String>, slots: usize) -> Self {
        Self {
            scheduler: scheduler.into(),
            slots,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            security: Security::default(),
            http_listen: None,
            result_capacity: 1 << 30,
            result_timeout: Duration::from_secs(10),
            max_blob: 256 << 20,
            memory_limit: None,
            work_dir: None,
            threads: std::thread::available_parallelism()
                .map_or(2, usize::from)
                .max(2),
        }
    }
}
