//! Where rows come from, as the planner sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;

/// A file format (or folder layout) that a source reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// A folder of image files, flat or with a folder per class.
    ImageFolder,
    /// Apache Parquet.
    Parquet,
    /// Comma-separated values.
    Csv,
    /// JSON, one object per line.
    Json,
    /// Arrow IPC files.
    Arrow,
    /// Avro object container files.
    Avro,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 6] = [
        Self::ImageFolder,
        Self::Parquet,
        Self::Csv,
        Self::Json,
        Self::Arrow,
        Self::Avro,
    ];

    /// The name after `STORED AS`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ImageFolder => "IMAGEFOLDER",
            Self::Parquet => "PARQUET",
            Self::Csv => "CSV",
            Self::Json => "JSON",
            Self::Arrow => "ARROW",
            Self::Avro => "AVRO",
        }
    }

    /// The name of the table function, as in `FROM images('dir')`.
    pub const fn function(self) -> &'static str {
        match self {
            Self::ImageFolder => "images",
            Self::Parquet => "parquet",
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Arrow => "arrow",
            Self::Avro => "avro",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a user says of a source: `CREATE EXTERNAL TABLE .. STORED AS format LOCATION location
/// OPTIONS (options)`, a table function, or a builder call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSpec {
    /// The format.
    pub format: Format,
    /// A file, a folder or a glob; a path of this machine or a URL.
    pub location: String,
    /// Options of the format, keys in lower case.
    pub options: BTreeMap<String, String>,
    /// Columns that the user declared instead of having them inferred.
    pub columns: Option<SchemaRef>,
}

/// Turns what a user says of a source into a table: lists its files, reads their schema and row
/// counts. The runtime implements it.
#[async_trait]
pub trait SourceResolver: fmt::Debug + Send + Sync {
    /// Opens the source. Errors say what is wrong with the location, a file or an option.
    async fn resolve(&self, spec: &SourceSpec) -> Result<Arc<dyn TableProvider>>;
}
