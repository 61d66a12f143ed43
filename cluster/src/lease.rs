//! Leases: some segments of a job, and the summary of their computed rows.

use arrow::array::RecordBatch;
use forebay_runtime::error::Error;
use forebay_runtime::run::{CacheUse, JobWork, SegmentName};
use serde::{Deserialize, Serialize};

use crate::cache_request::CacheReply;
use crate::engine::BlobHash;
use crate::failure::SegmentFailure;
use crate::message::{MessageError, MessageKind};
use crate::source_request::SourceReply;

/// Maximum number of segments in a lease.
pub const MAX_SEGMENTS: usize = 1 << 16;
/// Maximum size of an encoded request, in bytes.
pub const MAX_LEASE_BYTES: usize = 64 << 20;

/// A request to compute some segments of a job. The computed rows are a pure function of the lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Hash of the blob that describes the job.
    job: [u8; 32],
    /// The segments, in stream order.
    pub segments: Vec<SegmentName>,
    /// A number that the client changes when other workers have published rows in the cache that
    /// the segments need; `None` without a cache. It does not affect the rows.
    pub cache_view: Option<u64>,
}

impl Lease {
    /// Creates a lease of `segments` of the job that the blob `job` describes.
    pub fn new(job: BlobHash, segments: Vec<SegmentName>, cache_view: Option<u64>) -> Self {
        Self {
            job: *job.as_bytes(),
            segments,
            cache_view,
        }
    }

    /// Returns the hash of the blob that describes the job.
    pub const fn job(&self) -> BlobHash {
        BlobHash::from_bytes(self.job)
    }
}

/// Decodes a message that takes all of `bytes`.
pub(crate) fn whole<'a, T: Deserialize<'a>>(
    bytes: &'a [u8],
    kind: MessageKind,
) -> Result<T, MessageError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(kind.malformed(&format_args!("{} bytes follow it", rest.len()))),
        Err(error) => Err(kind.malformed(&error)),
    }
}

/// Result of one segment of a lease, without its rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SegmentOutcome {
    /// The segment was computed.
    Computed {
        /// Numbers of rows of its batches. The rows of small batches travel together.
        batches: Vec<u32>,
    },
    /// The segment cannot be read or computed, on any worker.
    Failed(SegmentFailure),
}

/// Description of the batches that a request returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseSummary {
    /// The segments of the lease were computed, except those that failed.
    Segments {
        /// Outcome of each segment, in order.
        outcomes: Vec<SegmentOutcome>,
        /// Time that computing them took, in nanoseconds.
        nanos: u64,
        /// The work that the worker did for the job so far, if it is measured.
        work: Option<JobWork>,
        /// Numbers of the segments' rows at the cache point; `None` without a cache.
        cache: Option<CacheUse>,
        /// The text that functions of the host language have printed.
        printed: String,
    },
    /// The blob that describes the lease's job, or the one of its functions, is not stored in the
    /// cluster any more. The client has to store them again.
    MissingJob,
    /// The rows of a share were counted; the counts are the value of the only column.
    Counted,
    /// The result of a request about a source.
    Source(SourceReply),
    /// The result of a request about a cache.
    Cache(CacheReply),
    /// The computed rows of a job were written to its cache.
    Published,
    /// The rows of a share cannot be counted, or the source or the cache cannot be opened or read,
    /// for a reason that does not depend on the worker, or only on its files.
    Failed(SegmentFailure),
    /// The lease or its job cannot be decoded, for this reason. No worker can compute the lease.
    Refused(String),
}

impl LeaseSummary {
    /// Encodes the summary.
    ///
    /// # Errors
    /// Fails if the summary cannot be encoded, which only a lack of memory causes.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        postcard::to_stdvec(self).map_err(|e| MessageKind::Summary.malformed(&e))
    }

    /// Decodes a summary, which is untrusted input.
    ///
    /// # Errors
    /// Fails if `bytes` is not a summary.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        whole(bytes, MessageKind::Summary)
    }
}

impl SegmentOutcome {
    /// Describes the outcome of a segment: the numbers of rows of its record batches, or its error.
    pub fn of(computed: Result<&[RecordBatch], &Error>) -> Self {
        let rows = |batch: &RecordBatch| u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
        match computed {
            Ok(batches) => Self::Computed {
                batches: batches.iter().map(rows).collect(),
            },
            Err(error) => Self::Failed(SegmentFailure::of(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_survives_encoding_and_garbage_is_refused() {
        let summary = LeaseSummary::Segments {
            outcomes: vec![
                SegmentOutcome::Computed {
                    batches: vec![5, 0],
                },
                SegmentOutcome::of(Err(&Error::Config("no".to_owned()))),
            ],
            nanos: 5,
            work: None,
            cache: None,
            printed: "half\n".to_owned(),
        };
        let bytes = summary.encode().unwrap();
        assert_eq!(LeaseSummary::decode(&bytes).unwrap(), summary);
        assert!(LeaseSummary::decode(&bytes[1..]).is_err());
    }
}
