//! Descriptions of jobs: the blob from which a worker opens the job of its leases.

use forebay_runtime::run::SharedCache;
use forebay_runtime::stream::token::StreamName;
use serde::{Deserialize, Serialize};

use crate::engine::BlobHash;
use crate::message::{MessageError, MessageKind};

/// Maximum size of an encoded description, in bytes.
pub const MAX_JOB_BYTES: usize = 256 << 20;
/// The release of this build.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");
/// Separates the header of a description, which is JSON, from the plan.
const HEADER_END: u8 = b'\n';

/// Description of a job. Workers open the same job from equal descriptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    /// Number of epochs in which each row is expected to be read; `None` if unlimited.
    pub epochs: Option<u64>,
    /// Name of the stream that the client runs. A worker whose job has another name has other files
    /// or another plan, and refuses the job.
    pub stream: StreamName,
    /// The cache that the workers share; `None` if the plan has no cache point.
    pub cache: Option<SharedCache>,
    /// A number that no other job has, if the CPU time of each operator is measured; `None` if it is
    /// not, so that runs share the job.
    pub analyze: Option<u64>,
    /// True if the client computes the last steps of the plan.
    pub is_cut: bool,
    /// The blob with the functions of the host language that the plan calls; `None` if it calls none.
    /// It names the job and not the stream: the stream is the same whatever code computes it.
    pub functions: Option<BlobHash>,
    /// The written plan, encoded.
    pub plan: Vec<u8>,
}

/// The description without its plan.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobHeader {
    release: String,
    epochs: Option<u64>,
    cache: Option<SharedCache>,
    analyze: Option<u64>,
    is_cut: bool,
    stream: StreamName,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    functions: Option<[u8; 32]>,
}

/// The part of a header that every release has.
#[derive(Debug, Deserialize)]
struct AnyHeader {
    release: String,
}

impl JobSpec {
    /// Encodes the description.
    ///
    /// # Errors
    /// Fails if the description is larger than [`MAX_JOB_BYTES`].
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        let header = JobHeader {
            release: RELEASE.to_owned(),
            epochs: self.epochs,
            cache: self.cache.clone(),
            analyze: self.analyze,
            is_cut: self.is_cut,
            stream: self.stream.clone(),
            functions: self.functions.as_ref().map(|hash| *hash.as_bytes()),
        };
        let header = serde_json::to_vec(&header);
        let mut bytes = header.map_err(|error| MessageKind::Job.malformed(&error))?;
        bytes.push(HEADER_END);
        bytes.extend_from_slice(&self.plan);
        if bytes.len() > MAX_JOB_BYTES {
            return Err(MessageKind::Job.too_large());
        }
        Ok(bytes)
    }

    /// Decodes a description, which is untrusted input.
    ///
    /// # Errors
    /// Fails if `bytes` is not a description, is too large, or is of another release.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        if bytes.len() > MAX_JOB_BYTES {
            return Err(MessageKind::Job.too_large());
        }
        // JSON has no line breaks where it is not formatted for people.
        let Some(end) = bytes.iter().position(|byte| *byte == HEADER_END) else {
            return Err(MessageKind::Job.malformed(&"it has no header"));
        };
        let (header, plan) = (&bytes[..end], &bytes[end + 1..]);
        let malformed = |error: serde_json::Error| MessageKind::Job.malformed(&error);
        let AnyHeader { release } = serde_json::from_slice(header).map_err(malformed)?;
        if release != RELEASE {
            return Err(MessageError::Release {
                client: release.chars().take(40).collect(),
                worker: RELEASE.to_owned(),
            });
        }
        let header: JobHeader = serde_json::from_slice(header).map_err(malformed)?;
        Ok(Self {
            epochs: header.epochs,
            cache: header.cache,
            analyze: header.analyze,
            is_cut: header.is_cut,
            stream: header.stream,
            functions: header.functions.map(BlobHash::from_bytes),
            plan: plan.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use forebay_runtime::stream::token::DataSize;

    use super::*;

    fn spec() -> JobSpec {
        JobSpec {
            epochs: Some(3),
            cache: Some(SharedCache {
                dir: "/cache".into(),
                mark: "ef".into(),
                names: [("/data/".into(), "/data".into())].into(),
            }),
            analyze: None,
            is_cut: true,
            stream: StreamName {
                semantic_hash: "ab".into(),
                clauses: "BATCH 4\n".into(),
                snapshot_hash: "cd".into(),
                data: DataSize {
                    files: 1,
                    rows: 2,
                    bytes: 3,
                },
                seed: 7,
                plan_hash: None,
            },
            functions: Some(BlobHash::of(b"def f(): pass")),
            plan: b"plan\nof two lines".to_vec(),
        }
    }

    #[test]
    fn a_description_survives_encoding() {
        let spec = spec();
        assert_eq!(JobSpec::decode(&spec.encode().unwrap()).unwrap(), spec);
    }

    #[test]
    fn another_release_and_garbage_are_refused() {
        let text = String::from_utf8(spec().encode().unwrap()).unwrap();
        let other = text.replacen(RELEASE, "9.9.9", 1);
        let error = JobSpec::decode(other.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("the client is forebay 9.9.9"), "{error}");
        for end in 0..text.find('\n').unwrap() {
            assert!(JobSpec::decode(&text.as_bytes()[..end]).is_err());
        }
        let unknown = text.replacen("{", r#"{"more":1,"#, 1);
        assert!(JobSpec::decode(unknown.as_bytes()).is_err());
    }
}
