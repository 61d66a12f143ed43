//! Failures of commands.

use std::io;
use std::path::Path;

use forebay::generate::GenerateError;
use forebay::preview::PreviewError;
use forebay_planner::error::PlanError;
use forebay_runtime::cache::CacheError;
use forebay_runtime::error::Error as RunError;
use forebay_runtime::source::is_output_clash;

/// The reason why a command ended without its result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandFailure {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// The library reported an error.
    #[error(transparent)]
    Forebay(#[from] forebay::Error),
    /// Data could not be generated.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// A contact sheet could not be drawn.
    #[error(transparent)]
    Preview(#[from] PreviewError),
    /// A cache cannot be read or changed.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// Any other failure, described by its message.
    #[error("{0}")]
    Run(String),
    /// The reader of the output closed the pipe.
    #[error("the reader of the output closed the pipe")]
    BrokenPipe,
    /// The user pressed Ctrl-C at the shell.
    #[error("interrupted")]
    Interrupted,
    /// A signal ended the command. The value is the number of the signal.
    #[error("{}", match .0 { 1 => "hung up", 15 => "terminated", _ => "interrupted" })]
    Signalled(u8),
}

impl CommandFailure {
    /// True if the command line or the SQL is at fault, rather than the data, the system or
    /// Forebay.
    pub(crate) fn is_user(&self) -> bool {
        match self {
            Self::Usage(_)
            | Self::Generate(GenerateError::Option(_) | GenerateError::Type { .. }) => true,
            Self::Cache(error) => error.is_user(),
            Self::Preview(error) => matches!(error, PreviewError::Size(_)),
            Self::Forebay(forebay::Error::Plan(error)) => match error {
                PlanError::Mistake(_) | PlanError::Saved(_) => true,
                PlanError::Source { source, .. } => is_output_clash(source),
                _ => false,
            },
            Self::Forebay(forebay::Error::Run(error)) => matches!(
                error,
                RunError::Config(_) | RunError::Memory { .. } | RunError::Room(_)
            ),
            _ => false,
        }
    }

    /// Creates the failure to do `action` (such as `"read"` or `"write"`) with the file `path`.
    pub(crate) fn file(action: &str, path: &Path, error: &io::Error) -> Self {
        Self::Run(format!("cannot {action} {}: {error}", path.display()))
    }
}

impl From<io::Error> for CommandFailure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Run(error.to_string()),
        }
    }
}
