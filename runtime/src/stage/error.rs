//! The error of temporary files.

use std::io;
use std::path::PathBuf;

use datafusion::common::DataFusionError;

/// A temporary file of this machine cannot be used, because the disk is full for example. The rows
/// are not at fault: another machine can compute them.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot {action} a temporary file in {}: {cause}; free space there, let TMPDIR name another folder, or give the \
     run more memory",
    .folder.display()
)]
pub struct SpillError {
    action: &'static str,
    folder: PathBuf,
    cause: io::Error,
}

impl SpillError {
    /// Describes a failure to `action` ("create", "write rows to", "read rows from").
    pub(super) fn failed_to(action: &'static str, cause: io::Error) -> DataFusionError {
        DataFusionError::External(Box::new(Self {
            action,
            folder: std::env::temp_dir(),
            cause,
        }))
    }
}
