//! Lease engines: systems that run leases on workers and return their results.

use std::fmt;
use std::time::Duration;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;

/// BLAKE3 hash of a blob, by which workers find the blob.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobHash([u8; 32]);

impl BlobHash {
    /// Returns the hash of `blob`.
    pub fn of(blob: &[u8]) -> Self {
        Self(*blake3::hash(blob).as_bytes())
    }

    /// Wraps the bytes of a hash.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobHash({self})")
    }
}

/// Name of a worker, which is new each time that the worker starts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub String);

/// The data that a worker stages before it computes a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseStaging {
    /// Time that staging takes on a worker that does not have the data. A slot of such a worker may
    /// stay free for that time.
    pub time: Duration,
    /// True if this is most of the data of the lease's affinity key.
    pub is_most: bool,
}

/// A lease, as an engine sees it.
#[derive(Debug, Clone)]
pub struct LeaseRequest {
    /// The lease, encoded. Engines pass it to a worker without reading it.
    pub payload: Bytes,
    /// Leases with the same affinity key share staged data, and run best on the same worker.
    pub affinity: u64,
    /// The data that a worker stages for the lease.
    pub staging: LeaseStaging,
    /// Position of the lease in its client's stream. Of the waiting leases of a client, the one
    /// with the lowest number runs first.
    pub order: u64,
    /// Workers that must not run the lease, because they failed it before.
    pub avoid: Vec<WorkerId>,
}

/// The result of a lease.
#[derive(Debug, Clone)]
pub struct LeaseOutput {
    /// The worker that computed the lease.
    pub worker: WorkerId,
    /// Computed rows. All batches have the same schema.
    pub batches: Vec<RecordBatch>,
    /// Description of the batches and of the segments that failed, encoded by the worker. Engines
    /// pass it to the client without reading it.
    pub summary: Bytes,
}

/// The reason why an engine has no result of a lease. Failures of a pipeline (a damaged file, a
/// row that cannot be decoded) are part of [`LeaseOutput::summary`] instead.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The worker ended, or its result was lost, before the client had the result.
    #[error("worker {} was lost: {cause}", worker.as_ref().map_or("(unknown)", |w| &w.0))]
    WorkerLost {
        /// The worker; `None` if unknown.
        worker: Option<WorkerId>,
        /// Description of the loss.
        cause: String,
    },
    /// A worker cannot run the lease, and other workers may: a file is missing on its machine, or
    /// it is of another release.
    #[error("worker {} cannot compute the lease: {cause}", worker.0)]
    WorkerUnfit {
        /// The worker.
        worker: WorkerId,
        /// The reason.
        cause: String,
    },
    /// The scheduler cannot be reached, or does not know the lease any more. The lease may be
    /// submitted again later.
    #[error("the cluster is unavailable: {cause}")]
    Unavailable {
        /// The reason.
        cause: String,
    },
    /// The cluster refuses the lease or the client, so submitting it again is useless.
    #[error("the cluster refuses the request: {cause}")]
    Refused {
        /// The reason.
        cause: String,
    },
}

/// State of a client's stream of leases, for the status of the cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamReport {
    /// Number of the stream in its process.
    pub stream: u64,
    /// The job that the stream belongs to; `None` if unknown.
    pub job: Option<BlobHash>,
    /// Rows that workers have computed so far.
    pub rows: u64,
    /// Rows for each second since the last report.
    pub rows_per_second: f64,
    /// Share of the time since the last report for which the client waited for workers, from 0 to 1.
    pub wait_share: f64,
    /// Leases without results.
    pub leases: u64,
    /// Attempts to compute leases that run.
    pub attempts: u64,
    /// Bytes that are reserved for leases or held in results.
    pub buffer_bytes: u64,
    /// Bound of these bytes.
    pub buffer_limit: u64,
    /// Workers to which no leases go, each with the reason.
    pub set_aside: Vec<(WorkerId, String)>,
    /// `true` if this is the stream's last report.
    pub has_ended: bool,
}

/// A system that runs leases on workers: Ballista, Ray, or threads of this process in tests.
#[async_trait]
pub trait LeaseEngine: fmt::Debug + Send + Sync + 'static {
    /// Makes a blob available to all workers under its hash. Does nothing if it already is.
    async fn put(&self, blob: Bytes) -> Result<BlobHash, EngineError>;

    /// Submits a lease, and returns a future of its result. Dropping the future cancels the lease.
    fn submit(&self, lease: LeaseRequest) -> BoxFuture<'static, Result<LeaseOutput, EngineError>>;

    /// Returns the names of the workers that run leases now.
    async fn workers(&self) -> Result<Vec<WorkerId>, EngineError>;

    /// Notes the state of a stream, which the engine may pass on. Does not wait.
    fn report(&self, _: StreamReport) {}
}
