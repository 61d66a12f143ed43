//! File formats of tables.

use std::fmt;
use std::path::Path;

/// A file format for tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// Apache Parquet.
    Parquet,
    /// Comma-separated values with a header.
    Csv,
    /// JSON lines: one object per line.
    Json,
    /// Arrow's IPC file format.
    Arrow,
}

impl fmt::Display for TableFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parquet => "Parquet",
            Self::Csv => "CSV",
            Self::Json => "JSON",
            Self::Arrow => "Arrow",
        })
    }
}

impl TableFormat {
    /// Returns the format for a file extension: `.parquet`, `.csv`, `.json`, `.jsonl`, `.ndjson`,
    /// `.arrow`, `.ipc` or `.feather`. `None` for any other extension.
    pub fn of_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "parquet" => Some(Self::Parquet),
            "csv" => Some(Self::Csv),
            "json" | "jsonl" | "ndjson" => Some(Self::Json),
            "arrow" | "ipc" | "feather" => Some(Self::Arrow),
            _ => None,
        }
    }

    /// True if the rows at the beginning of an unfinished file can be read, as in formats with one
    /// row per line. Parquet and Arrow files cannot be read without their footer, and their writers
    /// buffer rows.
    pub(super) const fn is_read_by_the_row(self) -> bool {
        match self {
            Self::Csv | Self::Json => true,
            Self::Parquet | Self::Arrow => false,
        }
    }
}
