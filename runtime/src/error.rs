//! What can go wrong while a pipeline runs.

use datafusion::common::DataFusionError;
use forebay_udfs::room::NoRoom;

use crate::tail::Failure;

/// Why a run stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A row failed, and the pipeline's policy is to stop (or no row could stand in for it).
    #[error("{0}")]
    Row(Box<Failure>),
    /// The memory limit leaves no room to work in.
    #[error(
        "the memory limit of {limit} bytes is too small for this pipeline: it needs at least \
         {minimum} bytes (three batches and the windows' bookkeeping); raise it or make batches smaller"
    )]
    Memory {
        /// What was allowed.
        limit: u64,
        /// What is needed.
        minimum: u64,
    },
    /// More rows failed than the pipeline's error budget allows.
    #[error(
        "{failed} of the {seen} rows seen of epoch {epoch} failed, and the error budget allows {allowed}{}; the \
         last: {last}", .of.map_or_else(String::new, |rows| format!(" of {rows}"))
    )]
    Budget {
        /// Rows that failed.
        failed: u64,
        /// Rows that were seen.
        seen: u64,
        /// The epoch.
        epoch: u64,
        /// Rows that may fail.
        allowed: u64,
        /// Of how many, where the budget is a share.
        of: Option<u64>,
        /// The last one.
        last: Box<Failure>,
    },
    /// A function of the host's failed in every row that a run saw: it is at fault, not the rows.
    #[error(
        "{function} failed with {kind} in every one of the first {rows} rows, so the function is at fault rather than \
         the rows, and on_error does not apply: correct it; the first: {first}"
    )]
    Function {
        /// The function's name.
        function: String,
        /// The kind of the failures: the type of an exception.
        kind: String,
        /// Rows that were seen.
        rows: u64,
        /// The first failure.
        first: Box<Failure>,
    },
    /// A resume token is of another stream.
    #[error("this resume token is of another stream: {0}")]
    Resume(String),
    /// A setting of the run makes no sense.
    #[error("{0}")]
    Config(String),
    /// A source, an operator or the engine failed.
    #[error("{}", forebay_planner::error::message_of(.0))]
    Engine(DataFusionError),
    /// The memory limit leaves no room to decode an image in.
    #[error(transparent)]
    Room(NoRoom),
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        let room = match error.find_root() {
            DataFusionError::External(why) => why.downcast_ref::<NoRoom>().copied(),
            _ => None,
        };
        room.map_or(Self::Engine(error), Self::Room)
    }
}

/// Result of the runtime.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Whether the user's input or settings are at fault, rather than a broken invariant of ours.
    pub fn is_user(&self) -> bool {
        match self {
            Self::Engine(error) => !matches!(error.find_root(), DataFusionError::Internal(_)),
            _ => true,
        }
    }
}
