//! Sources: their manifests of files and splits, and readers of rows by split or by reference.
//!
//! | Module | Format | Split | Access |
//! |---|---|---|---|
//! | `images` | `IMAGEFOLDER` | a file | direct |
//! | `parquet` | `PARQUET` | a row group | staged |
//! | `csv` | `CSV` | a range of rows | staged |
//! | `json` | `JSON` | a range of rows | staged |
//! | `avro` | `AVRO` | a range of blocks | staged |
//! | `ipc` | `ARROW` | a record batch | staged |
//! | `webdataset` | `WEBDATASET` | a range of samples | direct; staged when a shard is compressed |

mod avro;
#[cfg(test)]
mod conformance;
pub(crate) mod content;
#[cfg(test)]
pub(crate) mod counting;
mod csv;
mod error;
mod file_source;
mod images;
mod input;
mod ipc;
mod json;
mod listing;
mod manifest;
mod opened;
mod options;
mod overlap;
mod parquet;
mod plain;
mod reader;
mod recent_files;
mod resolver;
mod rows;
mod runs;
mod split_location;
mod stream;
mod table;
mod tar;
#[cfg(test)]
pub(crate) mod testing;
mod value_column;
mod watch;
mod webdataset;

use forebay_planner::source::Format;

pub use content::ContentHash;
pub use error::{FileChange, SourceError};
pub use file_source::FileSource;
pub use images::ImageFolder;
pub use manifest::{Manifest, SourceFile, Split};
pub use opened::{Access, Source};
pub use overlap::{check_output, is_output_clash};
use reader::SourceReader;
pub use resolver::FileResolver;
pub use rows::{Scan, StoredRows, ValueError};
pub use table::{SourceExec, SourceTable};

/// Returns the reader of a format.
const fn reader_of(format: Format) -> &'static SourceReader {
    match format {
        Format::ImageFolder => &images::READER,
        Format::Parquet => &parquet::READER,
        Format::Csv => &csv::READER,
        Format::Json => &json::READER,
        Format::Arrow => &ipc::READER,
        Format::Avro => &avro::READER,
        Format::WebDataset => &webdataset::READER,
    }
}
