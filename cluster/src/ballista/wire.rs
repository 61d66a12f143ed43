//! Messages between clients and the scheduler, and results of workers.
//!
//! They are written by hand, because the Protocol Buffers compiler is not on every machine that
//! builds this crate. A number that was once used must not get another meaning.

use bytes::Bytes;

/// A request to run a lease.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SubmitRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) payload: Bytes,
    #[prost(fixed64, tag = "2")]
    pub(crate) affinity: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) order: u64,
    #[prost(string, repeated, tag = "4")]
    pub(crate) avoid: Vec<String>,
    #[prost(string, tag = "5")]
    pub(crate) client: String,
    #[prost(uint64, tag = "6")]
    pub(crate) staging_nanos: u64,
    #[prost(bool, tag = "7")]
    pub(crate) stages_most: bool,
}

/// An answer to [`SubmitRequest`]: the job's id at once, and its end later.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SubmitEvent {
    #[prost(oneof = "SubmitStep", tags = "1, 2, 3")]
    pub(crate) step: Option<SubmitStep>,
}

/// The contents of a [`SubmitEvent`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum SubmitStep {
    /// Ballista's id of the job.
    #[prost(string, tag = "1")]
    Started(String),
    #[prost(message, tag = "2")]
    Finished(LeaseLocation),
    #[prost(message, tag = "3")]
    Failed(LeaseFailure),
}

/// The place of a lease's result.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseLocation {
    #[prost(message, optional, tag = "1")]
    pub(crate) worker: Option<WorkerAddress>,
    /// Flight ticket of the result.
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) ticket: Bytes,
}

/// A worker and its Flight service.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct WorkerAddress {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) host: String,
    #[prost(uint32, tag = "3")]
    pub(crate) port: u32,
}

/// The reason why a lease has no result.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseFailure {
    #[prost(enumeration = "FailureKind", tag = "1")]
    pub(crate) kind: i32,
    /// Empty if no worker had the lease.
    #[prost(string, tag = "2")]
    pub(crate) worker: String,
    #[prost(string, tag = "3")]
    pub(crate) cause: String,
}

/// Class of a [`LeaseFailure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum FailureKind {
    Unavailable = 0,
    WorkerLost = 1,
    WorkerUnfit = 2,
    Refused = 3,
}

/// A piece of a blob. The first one of a stream names the blob and its size.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct BlobChunk {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) hash: Bytes,
    #[prost(uint64, tag = "2")]
    pub(crate) size: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) data: Bytes,
}

/// The name of a blob.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct BlobName {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) hash: Bytes,
}

/// `true` or `false`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Flag {
    #[prost(bool, tag = "1")]
    pub(crate) is_set: bool,
}

/// A message without contents.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Nothing {}

/// A report that the connection to a worker broke.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WorkerReport {
    #[prost(string, tag = "1")]
    pub(crate) worker: String,
}

/// A request for the workers, with the state of the client that asks. Empty if it runs nothing.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ClientReport {
    #[prost(string, tag = "1")]
    pub(crate) client: String,
    #[prost(string, tag = "2")]
    pub(crate) release: String,
    /// Hashes of the jobs that it runs.
    #[prost(string, repeated, tag = "3")]
    pub(crate) jobs: Vec<String>,
    #[prost(uint64, tag = "4")]
    pub(crate) rows: u64,
    #[prost(double, tag = "5")]
    pub(crate) rows_per_second: f64,
    #[prost(double, tag = "6")]
    pub(crate) wait_share: f64,
    #[prost(uint64, tag = "7")]
    pub(crate) leases: u64,
    #[prost(uint64, tag = "8")]
    pub(crate) attempts: u64,
    #[prost(uint64, tag = "9")]
    pub(crate) buffer_bytes: u64,
    #[prost(uint64, tag = "10")]
    pub(crate) buffer_limit: u64,
    #[prost(message, repeated, tag = "11")]
    pub(crate) set_aside: Vec<SetAsideWorker>,
}

/// A worker to which a client gives no leases.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SetAsideWorker {
    #[prost(string, tag = "1")]
    pub(crate) worker: String,
    #[prost(string, tag = "2")]
    pub(crate) cause: String,
}

/// The status of a cluster, as JSON.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StatusText {
    #[prost(string, tag = "1")]
    pub(crate) json: String,
}

/// The workers that run leases.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WorkerList {
    #[prost(message, repeated, tag = "1")]
    pub(crate) workers: Vec<WorkerAddress>,
}

/// The last message of a result, after its batches.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResultEnd {
    #[prost(oneof = "ResultOutcome", tags = "1, 2")]
    pub(crate) outcome: Option<ResultOutcome>,
}

/// The contents of a [`ResultEnd`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum ResultOutcome {
    /// The lease's summary.
    #[prost(bytes = "bytes", tag = "1")]
    Summary(Bytes),
    /// The reason why the worker cannot compute the lease.
    #[prost(string, tag = "2")]
    Unfit(String),
}
