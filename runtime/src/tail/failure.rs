//! Failed rows, and what became of them.

use std::fmt;

/// Failed rows that are kept with their causes; all are counted.
pub const KEPT_FAILURES: usize = 100;

/// A failed row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Where the source is.
    pub location: String,
    /// The file, relative to the source.
    pub file: String,
    /// Row in the file, from 0.
    pub row: u64,
    /// The output column; `None` where a predicate failed.
    pub column: Option<String>,
    /// The operator that failed.
    pub operator: String,
    /// What went wrong.
    pub cause: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            location,
            file,
            row,
            column,
            operator,
            cause,
        } = self;
        write!(f, "{}, row {row}: {operator}", uri(location, file))?;
        match column {
            Some(column) => write!(f, " for column \"{column}\"")?,
            None => write!(f, " in a filter")?,
        }
        write!(f, ": {cause}")
    }
}

/// What became of failed rows, and how much was put out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Rows put out.
    pub rows: u64,
    /// Batches put out.
    pub batches: u64,
    /// Bytes of the batches put out.
    pub bytes: u64,
    /// Failed rows left out.
    pub skipped: u64,
    /// Failed rows for which another row stood in.
    pub replaced: u64,
    /// Failed rows kept with nulls.
    pub nulled: u64,
    /// The first failures, in stream order.
    pub failures: Vec<Failure>,
}

/// Where a file of a source is; the source may be the file itself.
pub(crate) fn uri(location: &str, file: &str) -> String {
    let is_file = |rest: &str| rest.is_empty() || rest.ends_with('/');
    match location.strip_suffix(file).is_some_and(is_file) {
        true => location.to_owned(),
        false => format!("{}/{file}", location.trim_end_matches('/')),
    }
}
