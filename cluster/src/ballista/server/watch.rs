//! Messages by which the scheduler watches a worker, by hand as those of
//! [`wire`](crate::ballista::wire).

use bytes::Bytes;

/// Name of the Flight action by which a worker is watched. The request's body is a
/// [`WatchRequest`]. The worker answers with a [`WatchAnswer`], and then with its [`WorkerState`]
/// every second until it ends.
pub(crate) const WATCH: &str = "forebay.watch";

/// The body of [`WATCH`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchRequest {
    #[prost(string, tag = "1")]
    pub(crate) worker: String,
    /// Text that was never used before.
    #[prost(string, tag = "2")]
    pub(crate) nonce: String,
}

/// The answer to a [`WatchRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchAnswer {
    /// Shows that the worker has the token of the cluster, without sending it.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) proof: Bytes,
}

/// The state of a worker, which follows [`WatchAnswer`] every second.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct WorkerState {
    #[prost(string, tag = "1")]
    pub(crate) release: String,
    #[prost(uint64, tag = "2")]
    pub(crate) slots: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) busy: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) leases: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) rows: u64,
    #[prost(uint64, tag = "6")]
    pub(crate) memory_bytes: u64,
    #[prost(uint64, tag = "7")]
    pub(crate) buffer_bytes: u64,
    #[prost(uint64, tag = "8")]
    pub(crate) buffer_limit: u64,
    #[prost(uint64, tag = "9")]
    pub(crate) open_jobs: u64,
    #[prost(uint64, tag = "10")]
    pub(crate) job_hits: u64,
    #[prost(uint64, tag = "11")]
    pub(crate) job_misses: u64,
    /// The latest incidents that did not fail a lease.
    #[prost(string, repeated, tag = "12")]
    pub(crate) events: Vec<String>,
}
