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
    /// The functions of a job.
    Functions,
}

impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lease => "lease",
            Self::Summary => "lease summary",
            Self::Job => "job",
            Self::Functions => "list of functions",
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
    #[error("a {kind} is larger than its limit{}", hint(*kind))]
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

/// Tells users how to keep a message below its limit, where they can.
const fn hint(kind: MessageKind) -> &'static str {
    match kind {
        MessageKind::Functions => {
            " of 256 MiB; load large values, such as a model, in the set-up of a class instead of sending them"
        }
        MessageKind::Lease | MessageKind::Summary | MessageKind::Job => "",
    }
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
