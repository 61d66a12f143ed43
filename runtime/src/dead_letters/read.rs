//! Reading of dead letters, to replay their rows.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{UInt32Type, UInt64Type};
use datafusion::common::exec_datafusion_err;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::schema::SCHEMA;
use crate::error::{Error, Result};

/// Names of the columns of the dead-letter table that are read: those that identify a failed row.
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

/// A failed row, as the dead-letter table records it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeadLetter {
    /// Semantic hash of the stream in which the row failed.
    pub semantic_hash: String,
    /// Epoch in which the row failed.
    pub epoch: u64,
    /// Step of the batch in which the row failed.
    pub step: u64,
    /// Key of the pass, which determines the random draws of the row.
    pub pass: u64,
    /// Occurrence number in the plan of the scan that read the row.
    pub occurrence: u32,
    /// Path of the file, relative to its source.
    pub file: String,
    /// Number of the row in the file.
    pub row: u64,
    /// Index of the row among the rows that `unnest` made of the same stored row.
    pub child: u32,
}

/// Reads dead letters from the Parquet file `path`, or from all Parquet files in the folder `path`,
/// and sorts them by epoch and step. Duplicates are left out.
///
/// # Errors
/// Fails if no dead letters are found, or if a file is not a table of dead letters.
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
        let input = std::fs::File::open(file).map_err(|why| cannot(&why))?;
        let builder =
            ParquetRecordBatchReaderBuilder::try_new(input).map_err(|why| cannot(&why))?;
        // The column `input` is not read: it may be large, and a replay reads the inputs from their
        // sources.
        let columns = ProjectionMask::columns(builder.parquet_schema(), COLUMNS);
        let reader = builder.with_projection(columns).build();
        for batch in reader.map_err(|why| cannot(&why))? {
            let batch = batch.map_err(|why| cannot(&why))?;
            letters.extend(of_batch(&batch).map_err(|why| cannot(&why))?);
        }
    }
    if letters.is_empty() {
        return Err(cannot(&"no dead letters found"));
    }
    // If a run was resumed from a token, both the earlier and the resumed run may have reported the
    // failures after that token.
    let mut known = HashSet::new();
    letters.retain(|letter| known.insert(letter.clone()));
    letters.sort_by_key(|letter| (letter.epoch, letter.step));
    Ok(letters)
}

fn of_batch(batch: &RecordBatch) -> Result<Vec<DeadLetter>> {
    let column = |name: &str| {
        let field = SCHEMA.field_with_name(name)?;
        let found = batch.column_by_name(name);
        let found = found
            .filter(|column| column.data_type() == field.data_type() && column.null_count() == 0);
        found.ok_or_else(|| {
            exec_datafusion_err!(
                "not a table of dead letters: column \"{name}\" is missing, has another type or has nulls"
            )
        })
    };
    let text = |name: &str| Ok::<_, Error>(column(name)?.as_string::<i32>().clone());
    let number = |name: &str| Ok::<_, Error>(column(name)?.as_primitive::<UInt64Type>().clone());
    let small = |name: &str| Ok::<_, Error>(column(name)?.as_primitive::<UInt32Type>().clone());
    let (hash, file) = (text("semantic_hash")?, text("file")?);
    let (epoch, step) = (number("epoch")?, number("step")?);
    let (pass, row) = (number("pass")?, number("row")?);
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
