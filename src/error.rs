//! Errors of the library's public interface.

use forebay_planner::error::PlanError;

use crate::generate::GenerateError;

/// An error of the library, with one message for the user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The SQL or the builder calls are wrong, or a source cannot be opened.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A run of a pipeline failed.
    #[error(transparent)]
    Run(#[from] forebay_runtime::error::Error),
}

impl Error {
    /// True if the user's input or settings are at fault, rather than a bug in Forebay.
    pub fn is_user(&self) -> bool {
        match self {
            Self::Plan(error) => !matches!(error, PlanError::Internal { .. }),
            Self::Run(error) => error.is_user(),
        }
    }
}

/// The library's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) fn planning(error: datafusion::common::DataFusionError) -> Error {
    Error::Plan(error.into())
}

pub(crate) fn generation(error: GenerateError) -> Error {
    planning(datafusion::common::exec_datafusion_err!("{error}"))
}

pub(crate) fn engine(error: datafusion::common::DataFusionError) -> Error {
    Error::Run(error.into())
}
