//! Errors of messages between client and worker.

use std::fmt;

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageKind {
    /// A request to compute segments.
    Lease,
    /// The description of a lease's rows.
    Summary,
    /// The description of a job.
    Job,
}

impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lease => "lease",
            Self::Summary => "lease summary",
            Self::Job => "job",
        })
    }
}

/// The reason why a message was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The message cannot be decoded.
    #[error("not a {kind}: {cause}")]
    Malformed {
        /// The expected kind of message.
        kind: MessageKind,
        /// The reason.
        cause: String,
    },
    /// The message is larger than its limit.
    #[error("a {kind} is larger than its limit")]
    TooLarge {
        /// The kind of message.
        kind: MessageKind,
    },
    /// Client and worker are of different releases.
    #[error(
        "the client is forebay {client}, but this worker is forebay {worker}; run the same release everywhere"
    )]
    Release {
        /// Release of the client.
        client: String,
        /// Release of the worker.
        worker: String,
    },
}

impl MessageKind {
    /// Returns the error of a message that cannot be decoded.
    pub(crate) fn malformed(self, cause: &dyn fmt::Display) -> MessageError {
        MessageError::Malformed {
            kind: self,
            cause: cause.to_string(),
        }
    }

    /// Returns the error of a message that is larger than its limit.
    pub(crate) const fn too_large(self) -> MessageError {
        MessageError::TooLarge { kind: self }
    }
}
