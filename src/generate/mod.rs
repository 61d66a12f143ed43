//! Generates realistic photos and tables, so that a pipeline can be tried, tested and measured
//! without a download. The same options give the same files on every machine.

mod error;
mod finite;
mod format;
mod photos;
mod stored;
mod table;
mod writer;

pub use error::GenerateError;
pub use format::TableFormat;
pub use photos::{MAX_CLASSES, MAX_SIDE, Photos, PhotosReport};
pub use stored::UnwritableColumn;
pub use table::{MAX_PAYLOAD, Table, TableReport};
pub use writer::TableWriter;
