//! Errors of sending and receiving a plan.

use super::version::{RELEASE, VERSION};
use crate::error::PlanError;
use crate::saved::difference::Difference;

/// The reason why a plan cannot be sent, or why a received plan is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The plan calls a function of the host program that the receiver did not get.
    #[error("the plan calls the function \"{0}\", which was not sent with it")]
    HostFunction(String),
    /// Two functions of the host program have the same name.
    #[error("two functions of the pipeline have the name \"{0}\"; give one of them another name")]
    SameName(String),
    /// The plan has a part that cannot be sent.
    #[error("{0} cannot be sent to another machine; run this pipeline on one machine")]
    Unsupported(String),
    /// A table of the plan was not opened from a description, so that no other machine can open it.
    #[error(
        "table \"{0}\" cannot be opened on another machine; write its rows to a file, and let the pipeline read it"
    )]
    Table(String),
    /// The plan cannot be divided between workers and client.
    #[error("internal error: the plan cannot be cut: {0}; please report it")]
    Cut(String),
    /// The plan does not survive its encoding.
    #[error("internal error: {0} is lost in the encoding of the plan; please report it")]
    Lost(String),
    /// The message is longer than the receiver accepts.
    #[error(
        "the plan has {bytes} bytes, above the limit of {max}; a join with a table shortens long lists"
    )]
    TooLarge {
        /// Length of the message.
        bytes: usize,
        /// Maximum length.
        max: usize,
    },
    /// The bytes are not an encoded plan, or were damaged on the way.
    #[error("not a plan that another machine sent: {0}; send it again")]
    Malformed(String),
    /// The message has another format version.
    #[error(
        "the plan has format version {found}, but forebay {RELEASE} reads version {VERSION}; install the same release \
         on all machines"
    )]
    Version {
        /// The version of the message.
        found: u32,
    },
    /// The sender is another release of Forebay.
    #[error(
        "the plan was sent by forebay {sent}, but this is forebay {RELEASE}; install the same release on all machines"
    )]
    Release {
        /// The release of the sender.
        sent: String,
    },
    /// The sender has other functions than the receiver.
    #[error(
        "the machine that sent the plan has other functions than this machine; install the same build on all machines"
    )]
    Functions,
    /// The receiver did not open each source exactly once.
    #[error(
        "internal error: the plan has {sent} sources, but {opened} were opened; please report it"
    )]
    SourceCount {
        /// Number of sources of the message.
        sent: usize,
        /// Number of opened sources.
        opened: usize,
    },
    /// A source has other columns on this machine.
    #[error(
        "source '{location}' differs between the machines: column {column} is {sent} on the machine that sent the plan, \
         but {found} here; let all machines read the same files"
    )]
    SourceColumns {
        /// Location of the source.
        location: String,
        /// Number of the first column that differs, from 1.
        column: usize,
        /// The column as sent.
        sent: String,
        /// The column of the opened source.
        found: String,
    },
    /// The written plan has another meaning here.
    #[error("the plan has another meaning on this machine: {0}")]
    Meaning(Difference),
    /// The search chose another plan here.
    #[error("this machine chose another plan: {0}")]
    Plan(Difference),
    /// The written plan cannot be planned.
    #[error(transparent)]
    Planning(#[from] PlanError),
}

impl WireError {
    /// Creates the error for bytes that are not an encoded plan.
    pub(super) fn malformed(why: impl Into<String>) -> Self {
        Self::Malformed(why.into())
    }
}
