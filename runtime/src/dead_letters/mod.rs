//! Dead letters: a table of the failed rows, for inspection and replay.
//!
//! The table is a folder of Parquet files with one row for each failed row of a batch:
//!
//! | column | type | contents |
//! |---|---|---|
//! | `semantic_hash`, `snapshot_hash` | text | identity of the pipeline and of its data |
//! | `seed`, `epoch`, `step`, `rank` | u64 | position in the stream |
//! | `pass` | u64 | key of the pass, which determines the row's random draws |
//! | `occurrence`, `file`, `row`, `child` | u32, text, u64, u32 | the row key: scan in the plan, path relative to its source, row in the file, child of `unnest` |
//! | `uri` | text | location of the file |
//! | `column`, `operator`, `error` | text | output column that failed (null if a filter failed), operator, and cause |
//! | `outcome` | text | `failed`, `skipped`, `replaced` or `nulled` |
//! | `input_bytes`, `sha256` | u64, text | size and SHA-256 of the row's input; null if it cannot be read |
//! | `input` | binary | the input itself, if it is at most `dead_letter_bytes` long |
//!
//! The input of a row is the data that its source stores in the columns that the pipeline reads:
//! the bytes of the binary column (such as an image file) if there is exactly one, otherwise the
//! columns as a line of JSON.

mod failed_row;
mod folder;
mod input;
mod read;
mod schema;
mod write;

pub(crate) use failed_row::FailedRow;
pub(crate) use folder::{check_folder, folder};
pub use read::{DeadLetter, read};
pub(crate) use write::DeadLetterWriter;
