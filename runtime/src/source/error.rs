//! What can be wrong with a source, said in one sentence.

use std::path::PathBuf;

use datafusion::common::DataFusionError;

/// What is wrong with a source: its location, an option, a file.
///
/// Reaches callers inside [`DataFusionError::External`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Nothing is at the location.
    #[error("no file or folder '{location}': check the path (relative paths start at {base})")]
    Missing {
        /// As the user wrote it.
        location: String,
        /// The folder that relative paths start at.
        base: String,
    },
    /// The location cannot be read by this build.
    #[error(
        "cannot read '{location}': only paths of this machine and file:// URLs are supported, not {scheme}://"
    )]
    Scheme {
        /// As the user wrote it.
        location: String,
        /// The scheme of the URL.
        scheme: String,
    },
    /// The location is no path, URL or glob.
    #[error("cannot understand the location '{location}': {cause}")]
    Location {
        /// As the user wrote it.
        location: String,
        /// Why.
        cause: String,
    },
    /// The location holds no file that the format reads.
    #[error("{0}")]
    Empty(String),
    /// A file or folder that is there cannot be read.
    #[error("cannot read '{path}': {source}")]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: std::io::Error,
    },
    /// A folder cannot be listed.
    #[error("cannot list '{path}': {cause}")]
    Listing {
        /// The folder.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// A symbolic link that leads nowhere, or round in a circle.
    #[error("'{path}' is a symbolic link {cause}: mend the link, or remove it")]
    Link {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        cause: String,
    },
    /// A pipe, a socket or a device.
    #[error("'{path}' is neither a file nor a folder: name a file, or move this out of the folder")]
    NoFile {
        /// Where it is.
        path: PathBuf,
    },
    /// An option that the format does not have, or a value that it cannot take.
    #[error("{0}")]
    Option(String),
    /// A file is not of the format, or is damaged.
    #[error("'{path}' is not a sound {format} file: {cause}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The format's name.
        format: &'static str,
        /// What is wrong, with the place in the file where that is known.
        cause: String,
    },
    /// A file is no longer what it was when the source was opened.
    #[error("'{path}' changed since the source was opened: {change}; open the source again")]
    Changed {
        /// The file.
        path: PathBuf,
        /// The difference.
        change: FileChange,
    },
    /// A file that is to be written is one that the source reads, or would read.
    #[error("cannot write {}: {cause}", output.display())]
    Output {
        /// The file that is to be written.
        output: PathBuf,
        /// What the source has to do with it, and what to do.
        cause: String,
    },
    /// The columns of the source do not fit together.
    #[error("{0}")]
    Schema(String),
}

/// Difference of a file from what it was when its source was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileChange {
    /// Another number of bytes.
    #[error("it had {was} bytes and has {now}")]
    Size {
        /// Bytes when the source was opened.
        was: u64,
        /// Bytes now.
        now: u64,
    },
    /// As many bytes of another content.
    #[error("it was written again, with another content in as many bytes")]
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
