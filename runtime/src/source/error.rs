//! Errors of sources.

use std::path::PathBuf;

use datafusion::common::DataFusionError;

use crate::objects::StoreError;

/// An error in the location, in an option or in a file of a source.
///
/// Callers receive a `SourceError` inside [`DataFusionError::External`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The location does not exist.
    #[error("no file or folder '{location}': check the path (relative paths start at {base})")]
    Missing {
        /// The location as the user wrote it.
        location: String,
        /// The folder that relative paths are resolved against.
        base: String,
    },
    /// An object store or a web server cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The location is not a valid path, URL or glob.
    #[error("cannot understand the location '{location}': {cause}")]
    Location {
        /// The location as the user wrote it.
        location: String,
        /// The reason.
        cause: String,
    },
    /// The location holds no file that the format reads.
    #[error("{0}")]
    Empty(String),
    /// A file or folder that exists cannot be read.
    #[error("cannot read '{path}': {source}")]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A folder cannot be listed.
    #[error("cannot list '{path}': {cause}")]
    Listing {
        /// The folder.
        path: PathBuf,
        /// The reason.
        cause: String,
    },
    /// A symbolic link whose target does not exist, or is a folder that contains the link.
    #[error("'{path}' is a symbolic link {cause}: mend the link, or remove it")]
    Link {
        /// The link.
        path: PathBuf,
        /// Description of the link's target.
        cause: String,
    },
    /// A path that is neither a file nor a folder: a pipe, a socket or a device.
    #[error("'{path}' is neither a file nor a folder: name a file, or move this out of the folder")]
    NoFile {
        /// The path of the pipe, socket or device.
        path: PathBuf,
    },
    /// An option that the format does not have, or an invalid value of an option.
    #[error("{0}")]
    Option(String),
    /// The content of a file is not of the source's format, or is damaged.
    #[error("'{path}' is not a sound {format} file: {cause}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The format's name.
        format: &'static str,
        /// The reason, with the line, row or byte offset in the file if that is known.
        cause: String,
    },
    /// A file was changed after the source was opened.
    #[error("'{path}' changed since the source was opened: {change}; open the source again")]
    Changed {
        /// The file.
        path: PathBuf,
        /// The way in which the file has changed.
        change: FileChange,
    },
    /// A file that is to be written is an input of the source, or would become an input when the
    /// source is opened again.
    #[error("cannot write {}: {cause}", output.display())]
    Output {
        /// The file that is to be written.
        output: PathBuf,
        /// The reason why the source reads or would read the file, and a remedy.
        cause: String,
    },
    /// The columns of the source's files contradict each other, or the declared columns do not suit
    /// the source.
    #[error("{0}")]
    Schema(String),
}

/// The way in which a file differs from its state when its source was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileChange {
    /// The size of the file has changed.
    #[error("it had {was} bytes then, and has {now} bytes now")]
    Size {
        /// Size in bytes when the source was opened.
        was: u64,
        /// Size in bytes now.
        now: u64,
    },
    /// The content of the file has changed, but not its size.
    #[error("it was written again, with another content of the same size")]
    Content,
}

impl SourceError {
    pub(crate) fn damaged(
        path: &std::path::Path,
        format: &'static str,
        cause: impl ToString,
    ) -> Self {
        Self::Damaged {
            path: path.to_path_buf(),
            format,
            cause: cause.to_string(),
        }
    }

    pub(crate) fn unreadable(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::Unreadable {
            path: path.to_path_buf(),
            source,
        }
    }
}

impl From<SourceError> for DataFusionError {
    fn from(error: SourceError) -> Self {
        Self::External(Box::new(error))
    }
}
