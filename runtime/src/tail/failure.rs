//! Failed rows and statistics of a run.

use std::fmt;

/// Maximum number of failed rows that a run keeps with their causes; later failed rows are only
/// counted.
pub const KEPT_FAILURES: usize = 100;

/// A failed row, and the reason of its failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Location of the source.
    pub location: String,
    /// Path of the file, relative to the source.
    pub file: String,
    /// Number of the row in the file, from 0.
    pub row: u64,
    /// Name of the output column whose value failed; `None` if a predicate raised an error.
    pub column: Option<String>,
    /// The operator that failed.
    pub operator: String,
    /// Text that says why the operator failed.
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

/// Statistics of the emitted batches and of failed rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Number of rows emitted.
    pub rows: u64,
    /// Number of batches emitted.
    pub batches: u64,
    /// Total size of the emitted batches, in bytes.
    pub bytes: u64,
    /// Number of failed rows that were skipped.
    pub skipped: u64,
    /// Number of failed rows that were replaced by other rows.
    pub replaced: u64,
    /// Number of failed rows that were kept, with null in place of the failed values.
    pub nulled: u64,
    /// The first failures in stream order, at most [`KEPT_FAILURES`].
    pub failures: Vec<Failure>,
}

/// Returns the URI of the file `file` of the source at `location`, which may be the file itself.
pub(crate) fn uri(location: &str, file: &str) -> String {
    let is_file = |rest: &str| rest.is_empty() || rest.ends_with('/');
    if location.strip_suffix(file).is_some_and(is_file) {
        location.to_owned()
    } else {
        format!("{}/{file}", location.trim_end_matches('/'))
    }
}
