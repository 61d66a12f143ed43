//! Data of our own making: realistic photos and tables, so that a pipeline can be tried, tested and
//! measured without a download. What is made follows from the options alone: the same options give
//! the same files on every machine.

mod finite;
mod noise;
mod painter;
mod photos;
mod stored;
mod table;
mod writer;

use std::path::PathBuf;

pub use photos::{MAX_CLASSES, MAX_SIDE, Photos, PhotosReport};
pub use stored::UnwritableColumn;
pub use table::{MAX_PAYLOAD, Table, TableReport};
pub use writer::{TableFormat, TableWriter};

/// Why data could not be made or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// An option that cannot be met; the text says what was expected.
    #[error("{0}")]
    Option(String),
    /// A file or folder could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// An image could not be encoded.
    #[error("cannot encode {}: {source}", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// What the encoder said.
        source: image::ImageError,
    },
    /// A column has a type that the file's format does not hold.
    #[error("cannot write {}: {source}", path.display())]
    Type {
        /// The file.
        path: PathBuf,
        /// The column.
        source: Box<UnwritableColumn>,
    },
    /// Rows could not be made or encoded.
    #[error("cannot write {}: {source}", path.display())]
    Rows {
        /// The file.
        path: PathBuf,
        /// What the writer said.
        source: arrow::error::ArrowError,
    },
}
