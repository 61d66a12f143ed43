//! Errors of the library's surface.

use forebay_planner::error::PlanError;

/// What went wrong, in one message for the user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text or the builder calls are wrong, or a source cannot be opened.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A run stopped.
    #[error(transparent)]
    Run(#[from] forebay_runtime::error::Error),
}

impl Error {
    /// Whether the user's input or settings are at fault, rather than a broken invariant of ours.
    pub fn is_user(&self) -> bool {
        match self {
            Self::Plan(error) => !matches!(error, PlanError::Internal { .. }),
            Self::Run(error) => error.is_user(),
        }
    }
}

/// Result of the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) fn planning(error: &datafusion::common::DataFusionError) -> Error {
    Error::Plan(PlanError::mistake(forebay_planner::error::message_of(
        error,
    )))
}

pub(crate) fn engine(error: datafusion::common::DataFusionError) -> Error {
    Error::Run(error.into())
}
