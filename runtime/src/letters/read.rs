//! Reading dead letters, to run their rows again.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{UInt32Type, UInt64Type};
use datafusion::common::exec_datafusion_err;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::SCHEMA;
use crate::error::{Error, Result};

/// The columns that name a row.
const COLUMNS: [&str; 8] = [
    "semantic_hash",
    "epoch",
    "step",
    "pass",
    "occurrence",
    "file",
    "row",
    "child",
];

/// A failed row, as the table tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeadLetter {
    /// Meaning of the stream that it failed in.
    pub semantic_hash: String,
    /// Epoch.
    pub epoch: u64,
    /// Step in the epoch.
    pub step: u64,
    /// Key of the pass, from which the row's draws follow.
    pub pass: u64,
    /// Ordinal of the source in the plan.
    pub occurrence: u32,
    /// File, relative to its source.
    pub file: String,
    /// Row in the file.
    pub row: u64,
    /// Row of `unnest`.
    pub child: u32,
}

/// Reads dead letters: a Parquet file, or all of a folder in the order of epochs, steps and rows.
///
/// # Errors
/// There is none, or a file is not such a table.
pub fn read(path: &Path) -> Result<Vec<DeadLetter>> {
    let of = |path: &Path, why: &dyn std::fmt::Display| {
        Error::Config(format!("dead letters {}: {why}", path.display()))
    };
    let cannot = |why: &dyn std::fmt::Display| of(path, why);
    let mut files: Vec<PathBuf> = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).map_err(|why| cannot(&why))? {
            let file = entry.map_err(|why| cannot(&why))?.path();
            if file.extension().is_some_and(|end| end == "parquet") {
                files.push(file);
            }
        }
        files.sort();
    } else {
        files.push(path.to_owned());
    }
    let mut letters = Vec::new();
    for file in &files {
        let cannot = |why: &dyn std::fmt::Display| of(file, why);
        let opened = std::fs::File::open(file).map_err(|why| cannot(&why))?;
        let builder =
            ParquetRecordBatchReaderBuilder::try_new(opened).map_err(|why| cannot(&why))?;
        // The inputs may be large, and are read again from where they came.
        let columns = ProjectionMask::columns(builder.parquet_schema(), COLUMNS);
        let reader = builder.with_projection(columns).build();
        for batch in reader.map_err(|why| cannot(&why))? {
            let batch = batch.map_err(|why| cannot(&why))?;
            letters.extend(of_batch(&batch).map_err(|why| cannot(&why))?);
        }
    }
    if letters.is_empty() {
        return Err(cannot(&"there are none"));
    }
    // A run that went on from a token tells again what failed behind it.
    let mut known = HashSet::new();
    letters.retain(|letter| known.insert(letter.clone()));
    letters.sort_by_key(|letter| (letter.epoch, letter.step));
    Ok(letters)
}

fn of_batch(batch: &RecordBatch) -> Result<Vec<DeadLetter>> {
    let column = |name: &str| {
        let found = batch.column_by_name(name);
        let found = found.filter(|column| {
            SCHEMA
                .field_with_name(name)
                .is_ok_and(|f| f.data_type() == column.data_type())
                && column.null_count() == 0
        });
        found.ok_or_else(|| exec_datafusion_err!("not a table of dead letters: its \"{name}\""))
    };
    let text = |name: &str| Ok::<_, Error>(column(name)?.as_string::<i32>().clone());
    let number = |name: &str| Ok::<_, Error>(column(name)?.as_primitive::<UInt64Type>().clone());
    let small = |name: &str| Ok::<_, Error>(column(name)?.as_primitive::<UInt32Type>().clone());
    let (hash, file) = (text("semantic_hash")?, text("file")?);
    let (epoch, step, pass, row) = (
        number("epoch")?,
        number("step")?,
        number("pass")?,
        number("row")?,
    );
    let (occurrence, child) = (small("occurrence")?, small("child")?);
    let letters = (0..batch.num_rows()).map(|at| DeadLetter {
        semantic_hash: hash.value(at).to_owned(),
        epoch: epoch.value(at),
        step: step.value(at),
        pass: pass.value(at),
        occurrence: occurrence.value(at),
        file: file.value(at).to_owned(),
        row: row.value(at),
        child: child.value(at),
    });
    Ok(letters.collect())
}
