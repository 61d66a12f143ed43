//! Errors of generating and writing data.

use std::path::PathBuf;

use super::stored::UnwritableColumn;

/// An error while generating or writing data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// An option is out of range. The text names the expected range.
    #[error("{0}")]
    Option(String),
    /// A file or folder could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// Path of the file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// An image could not be encoded.
    #[error("cannot encode {}: {source}", path.display())]
    Image {
        /// Path of the image file.
        path: PathBuf,
        /// The encoder's error.
        source: image::ImageError,
    },
    /// The file's format cannot hold a column's type.
    #[error("cannot write {}: {source}", path.display())]
    Type {
        /// Path of the table file.
        path: PathBuf,
        /// The column that cannot be written.
        source: Box<UnwritableColumn>,
    },
    /// Rows could not be generated or encoded.
    #[error("cannot write {}: {source}", path.display())]
    Rows {
        /// Path of the table file.
        path: PathBuf,
        /// The writer's error.
        source: arrow::error::ArrowError,
    },
}
