//! The interface between a worker and the code that computes leases.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::future::BoxFuture;

use crate::engine::BlobHash;

/// The code that computes leases on a worker.
pub trait LeaseHandler: Send + Sync + fmt::Debug + 'static {
    /// Computes the lease that `payload` encodes. The future is dropped when the lease is
    /// cancelled. It runs on one of the worker's slots, so it may compute for long between awaits.
    fn compute(
        &self,
        payload: Bytes,
        blobs: Arc<dyn BlobSource>,
    ) -> BoxFuture<'static, Result<HandlerOutput, HandlerError>>;

    /// Returns the latest incidents that did not fail a lease, oldest first.
    fn events(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns what the handler has counted.
    fn counts(&self) -> HandlerCounts {
        HandlerCounts::default()
    }
}

/// Counts of a handler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HandlerCounts {
    /// Jobs that are open.
    pub open_jobs: u64,
    /// Leases that found their job open.
    pub job_hits: u64,
    /// Leases that had to open their job.
    pub job_misses: u64,
}

/// The result of a lease on its worker.
#[derive(Debug, Clone, Default)]
pub struct HandlerOutput {
    /// Computed rows. All batches have the same schema, and reach the client as they are.
    pub batches: Vec<RecordBatch>,
    /// Description of the batches, which the client gets with them.
    pub summary: Bytes,
}

/// The reason why a worker has no result.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerError {
    /// This worker cannot compute the lease, and others may.
    #[error("{cause}")]
    Unfit {
        /// The reason, for the user.
        cause: String,
    },
}

/// The blobs of the cluster, as workers read them.
pub trait BlobSource: Send + Sync + fmt::Debug + 'static {
    /// Reads the blob with `hash`. Its contents are verified.
    fn get(&self, hash: BlobHash) -> BoxFuture<'static, Result<Bytes, BlobError>>;
}

/// The reason why a blob cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum BlobError {
    /// The scheduler does not have the blob: it was restarted, or other blobs took its place.
    #[error("blob {0} is not stored; upload it again")]
    Missing(BlobHash),
    /// The scheduler cannot be reached, or sent something else.
    #[error("cannot read blob {hash}: {cause}")]
    Unavailable {
        /// The blob.
        hash: BlobHash,
        /// The reason.
        cause: String,
    },
}
