//! Dead letters: a table of the rows that failed, from which they can be looked into and run again.
//!
//! A folder of Parquet files, one row for each failed row of a batch:
//!
//! | column | type | what it says |
//! |---|---|---|
//! | `semantic_hash`, `snapshot_hash` | text | which stream failed, over which data |
//! | `seed`, `epoch`, `step`, `rank` | u64 | where in the stream |
//! | `pass` | u64 | key of the pass, from which the row's draws follow |
//! | `occurrence`, `file`, `row`, `child` | u32, text, u64, u32 | the row key: source in the plan, path relative to it, row of the file, row of `unnest` |
//! | `uri` | text | where the file is |
//! | `column`, `operator`, `error` | text | which output failed (none: a filter), what failed, and why |
//! | `outcome` | text | `failed`, `skipped`, `replaced` or `nulled` |
//! | `input_bytes`, `sha256` | u64, text | size and SHA-256 of the row's input; none where it cannot be read |
//! | `input` | binary | the input itself, where `dead_letter_bytes` asks for it and it is no larger |
//!
//! The input of a row is what its source stores of it in the columns that the pipeline reads: the bytes of the one
//! binary column, such as a photo's file, else the columns as a line of JSON.

mod input;
mod read;
mod write;

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

pub use self::read::{DeadLetter, read};
pub(crate) use self::write::LetterWriter;
use crate::error::{Error, Result};
use crate::source::{Source, check_output};

/// The folder that a pipeline names for them.
///
/// # Errors
/// It is no folder of this machine.
pub(crate) fn folder(said: Option<&str>) -> Result<Option<PathBuf>> {
    let Some(said) = said else { return Ok(None) };
    let path = said.strip_prefix("file://").unwrap_or(said);
    if path.contains("://") {
        return Err(Error::Config(format!(
            "dead_letters = '{said}': dead letters are written to a folder of this machine; name one, and copy it \
             where it is wanted"
        )));
    }
    Ok(Some(PathBuf::from(path)))
}

/// Refuses a folder from which a source would read dead letters as rows the next time.
///
/// # Errors
/// The source takes Parquet files of that folder in.
pub(crate) fn check_folder(folder: &Path, source: &dyn Source) -> Result<()> {
    let letters = folder.join("letters.parquet");
    check_output(source, &letters).map_err(|why| Error::Config(format!("dead_letters: {why}")))
}

/// A failed row as the tail meets it.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    pub(crate) epoch: u64,
    pub(crate) step: u64,
    pub(crate) pass: u64,
    /// Index into the snapshot's files.
    pub(crate) file: u32,
    pub(crate) row: u64,
    pub(crate) child: u32,
    pub(crate) column: Option<String>,
    pub(crate) operator: String,
    pub(crate) cause: String,
    pub(crate) outcome: &'static str,
}

/// The columns of the table.
static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let column = |name: &str, kind| Field::new(name, kind, false);
    Arc::new(Schema::new(vec![
        column("semantic_hash", DataType::Utf8),
        column("snapshot_hash", DataType::Utf8),
        column("seed", DataType::UInt64),
        column("epoch", DataType::UInt64),
        column("step", DataType::UInt64),
        column("rank", DataType::UInt64),
        column("pass", DataType::UInt64),
        column("occurrence", DataType::UInt32),
        column("file", DataType::Utf8),
        column("row", DataType::UInt64),
        column("child", DataType::UInt32),
        column("uri", DataType::Utf8),
        column("column", DataType::Utf8).with_nullable(true),
        column("operator", DataType::Utf8),
        column("error", DataType::Utf8),
        column("outcome", DataType::Utf8),
        column("input_bytes", DataType::UInt64).with_nullable(true),
        column("sha256", DataType::Utf8).with_nullable(true),
        column("input", DataType::Binary).with_nullable(true),
    ]))
});
