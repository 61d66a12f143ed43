//! The errors of a run.

use arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use forebay_udfs::room::NoRoom;

pub use crate::stage::SpillError;
use crate::tail::Failure;

/// The reason why a run stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A row failed, and the policy `on_error` of the pipeline is to stop, or no other row could
    /// replace the failed row.
    #[error("{0}")]
    Row(Box<Failure>),
    /// The memory limit is too small to run the pipeline.
    #[error(
        "the memory limit of {limit} bytes is too small for this pipeline: it needs at least \
         {minimum} bytes (three batches and the windows' bookkeeping); raise it or make batches smaller"
    )]
    Memory {
        /// The memory limit of the run, in bytes.
        limit: u64,
        /// The minimum that the pipeline needs, in bytes.
        minimum: u64,
    },
    /// More rows failed than the pipeline's error budget allows.
    #[error(
        "{failed} of the {seen} rows seen of epoch {epoch} failed, and the error budget allows {allowed}{}; the \
         last: {last}", .of.map_or_else(String::new, |rows| format!(" of {rows}"))
    )]
    Budget {
        /// Number of rows that failed in the epoch.
        failed: u64,
        /// Number of rows of the epoch so far, including failed ones.
        seen: u64,
        /// The epoch in which the rows failed.
        epoch: u64,
        /// Number of rows that may fail in an epoch.
        allowed: u64,
        /// Number of rows to which a budget in percent applies; `None` if the budget is a number of
        /// rows.
        of: Option<u64>,
        /// The last failure.
        last: Box<Failure>,
    },
    /// A function of the host language failed in every row that the run processed, so the function
    /// is at fault and not the rows.
    #[error(
        "{function} failed with {kind} in every one of the first {rows} rows, so the function is at fault rather than \
         the rows, and on_error does not apply: correct it; the first: {first}"
    )]
    Function {
        /// Name of the function at fault.
        function: String,
        /// The kind that all failures share, such as an exception type.
        kind: String,
        /// Number of first rows of the run, all of which failed.
        rows: u64,
        /// The first failure.
        first: Box<Failure>,
    },
    /// The resume token belongs to another stream.
    #[error("this resume token belongs to another stream: {0}")]
    Resume(String),
    /// A setting of the run is invalid.
    #[error("{0}")]
    Config(String),
    /// A source, an operator or the engine failed.
    #[error("{}", forebay_planner::error::message_of(.0))]
    Engine(DataFusionError),
    /// The memory limit is too small to decode an image.
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

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        DataFusionError::from(error).into()
    }
}

/// Result with the runtime's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns true if the user's input, a setting or the machine is at fault; false if an
    /// invariant of this crate is broken.
    pub fn is_user(&self) -> bool {
        match self {
            Self::Engine(error) => !matches!(error.find_root(), DataFusionError::Internal(_)),
            _ => true,
        }
    }
}
