//! Descriptions of sources of rows, and the trait that opens a described source.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;

/// Passes the list of formats to the macro `$then`. Each line holds the variant of [`Format`], the
/// name after `STORED AS`, and the name of the table function and of the builder function.
macro_rules! formats {
    ($then:ident) => {
        $then! {
            /// A folder of image files, flat or with a folder per class.
            ImageFolder, "IMAGEFOLDER", images;
            /// Apache Parquet files.
            Parquet, "PARQUET", parquet;
            /// Files of comma-separated values.
            Csv, "CSV", csv;
            /// Files of JSON lines: one object per line.
            Json, "JSON", json;
            /// Arrow IPC files.
            Arrow, "ARROW", arrow;
            /// Avro object container files.
            Avro, "AVRO", avro;
            /// Shards of samples in the layout of the `webdataset` library: tar archives, plain or compressed by gzip.
            WebDataset, "WEBDATASET", webdataset;
        }
    };
}
pub(crate) use formats;

macro_rules! declare_formats {
    ($($(#[$doc:meta])* $format:ident, $name:literal, $function:ident;)*) => {
        /// A file format (or folder layout) that a source reads.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Format {
            $($(#[$doc])* $format,)*
        }

        impl Format {
            /// All formats.
            pub const ALL: &[Self] = &[$(Self::$format),*];

            /// The name after `STORED AS`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$format => $name,)*
                }
            }

            /// The name of the table function, as in `FROM images('dir')`.
            pub const fn function(self) -> &'static str {
                match self {
                    $(Self::$format => stringify!($function),)*
                }
            }
        }
    };
}

formats!(declare_formats);

impl Format {
    /// Returns the format that the table function `function` reads.
    pub fn of_function(function: &str) -> Option<Self> {
        let mut formats = Self::ALL.iter().copied();
        formats.find(|format| format.function() == function)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The user's description of a source: `CREATE EXTERNAL TABLE .. STORED AS format LOCATION location
/// OPTIONS (options)`, a table function, or a builder call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSpec {
    /// The format.
    pub format: Format,
    /// A file, a folder or a glob; a local path or a URL.
    pub location: String,
    /// Options of the format; keys are in lower case.
    pub options: BTreeMap<String, String>,
    /// Columns that the user declared; `None` if they are inferred from the files.
    pub columns: Option<SchemaRef>,
}

/// Opens a source as a table: lists its files and reads their schema and row counts. The runtime
/// implements this trait.
#[async_trait]
pub trait SourceResolver: fmt::Debug + Send + Sync {
    /// Opens the source. Errors name the location, file or option at fault.
    async fn resolve(&self, spec: &SourceSpec) -> Result<Arc<dyn TableProvider>>;
}
