//! Requests of a client to a worker. An engine carries them as the payloads of leases.

use forebay_runtime::run::ShareName;
use serde::{Deserialize, Serialize};

use crate::cache_request::CacheRequest;
use crate::engine::BlobHash;
use crate::lease::{Lease, MAX_LEASE_BYTES, MAX_SEGMENTS, whole};
use crate::message::{MessageError, MessageKind};
use crate::source_request::SourceRequest;

/// A request of a client. Its result depends on nothing but the request and the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum WorkerRequest {
    /// Compute segments of a job.
    Segments(Lease),
    /// Count a share of the rows of a job.
    Count(CountRequest),
    /// Open a source, or read some of its rows.
    Source(SourceRequest),
    /// Tell facts about a cache.
    Cache(CacheRequest),
    /// Write computed rows of a job to its cache.
    Publish(PublishRequest),
}

/// A request to write the rows that the worker computed for a job, and holds in memory, to the cache
/// of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishRequest {
    /// Hash of the blob that describes the job.
    job: [u8; 32],
}

impl PublishRequest {
    /// Creates a request to publish the rows of the job that the blob `job` describes.
    pub const fn new(job: BlobHash) -> Self {
        Self {
            job: *job.as_bytes(),
        }
    }

    /// Returns the hash of the blob that describes the job.
    pub const fn job(&self) -> BlobHash {
        BlobHash::from_bytes(self.job)
    }
}

/// A request to count a share of the stored rows of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountRequest {
    /// Hash of the blob that describes the job.
    job: [u8; 32],
    /// The share.
    pub share: ShareName,
}

impl CountRequest {
    /// Creates a request to count `share` of the job that the blob `job` describes.
    pub const fn new(job: BlobHash, share: ShareName) -> Self {
        Self {
            job: *job.as_bytes(),
            share,
        }
    }

    /// Returns the hash of the blob that describes the job.
    pub const fn job(&self) -> BlobHash {
        BlobHash::from_bytes(self.job)
    }
}

impl WorkerRequest {
    /// Encodes the request.
    ///
    /// # Errors
    /// Fails if a lease has too many segments, or if the request is too large.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        if self.segments() > MAX_SEGMENTS {
            return Err(MessageKind::Lease.too_large());
        }
        let bytes = postcard::to_stdvec(self).map_err(|e| MessageKind::Lease.malformed(&e))?;
        if bytes.len() > MAX_LEASE_BYTES {
            return Err(MessageKind::Lease.too_large());
        }
        Ok(bytes)
    }

    /// Decodes a request, which is untrusted input.
    ///
    /// # Errors
    /// Fails if `bytes` is not a request, or is too large.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        if bytes.len() > MAX_LEASE_BYTES {
            return Err(MessageKind::Lease.too_large());
        }
        let request: Self = whole(bytes, MessageKind::Lease)?;
        if request.segments() > MAX_SEGMENTS {
            return Err(MessageKind::Lease.too_large());
        }
        Ok(request)
    }

    const fn segments(&self) -> usize {
        match self {
            Self::Segments(lease) => lease.segments.len(),
            Self::Count(_) | Self::Source(_) | Self::Cache(_) | Self::Publish(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_encoding_and_garbage_is_refused() {
        let request =
            WorkerRequest::Segments(Lease::new(BlobHash::of(b"job"), Vec::new(), Some(7)));
        let bytes = request.encode().unwrap();
        assert_eq!(WorkerRequest::decode(&bytes).unwrap(), request);
        for end in 0..bytes.len() {
            assert!(WorkerRequest::decode(&bytes[..end]).is_err());
        }
        assert!(WorkerRequest::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
        // A length beyond the message allocates nothing.
        let claimed = [&[0; 33][..], &[0xff; 9], &[1]].concat();
        assert!(WorkerRequest::decode(&claimed).is_err());
    }
}
