//! The input of a failed row: the data that the row's source stores for the row.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use arrow::json::LineDelimitedWriter;
use datafusion::common::Result;
use futures::StreamExt;
use sha2::{Digest, Sha256};

use super::failed_row::FailedRow;
use crate::job::OpenPlan;
use crate::source::{Access, Scan};

/// The input of a failed row, as the dead-letter table records it.
#[derive(Debug, Clone)]
pub(super) struct Input {
    pub(super) bytes: u64,
    /// SHA-256 of the input, in hexadecimal digits.
    pub(super) sha256: String,
    /// The bytes of the input; `None` if the input is too large to be kept.
    pub(super) kept: Option<Vec<u8>>,
}

impl Input {
    fn new(bytes: Vec<u8>, keep: u64) -> Self {
        let digest = Sha256::digest(&bytes);
        let size = bytes.len() as u64;
        Self {
            bytes: size,
            sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            kept: (size <= keep).then_some(bytes),
        }
    }
}

/// Reads the input of each row in `letters`, in order; `None` for an input that cannot be read. The
/// bytes of an input are kept if it has at most `keep` bytes.
pub(super) async fn inputs(
    plan: &OpenPlan,
    letters: &[FailedRow],
    keep: u64,
) -> Vec<Option<Input>> {
    let snapshot = &plan.data.snapshot;
    let mut inputs = vec![None; letters.len()];
    // Rows are grouped by split, because some sources can only read a whole split.
    let mut by_split: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, letter) in letters.iter().enumerate() {
        let row = letter.failure.row;
        let split = snapshot.splits.iter().position(|split| {
            split.file == letter.file
                && (split.first_row..split.first_row + split.rows).contains(&row)
        });
        if let Some(split) = split {
            by_split.entry(split as u32).or_default().push(at);
        }
    }
    for (split, rows) in by_split {
        let wanted: Vec<u64> = rows.iter().map(|&at| letters[at].failure.row).collect();
        match of_split(plan, split, &wanted, keep).await {
            Ok(found) => {
                for (at, input) in rows.into_iter().zip(found) {
                    inputs[at] = input;
                }
            }
            Err(error) => log::debug!("the input of a failed row cannot be read: {error}"),
        }
    }
    inputs
}

async fn of_split(
    plan: &OpenPlan,
    split: u32,
    wanted: &[u64],
    keep: u64,
) -> Result<Vec<Option<Input>>> {
    let input_of = |bytes: Option<Vec<u8>>| bytes.map(|bytes| Input::new(bytes, keep));
    let snapshot_split = plan.data.snapshot.splits[split as usize];
    let scan = snapshot_split.scan as usize;
    let source = &plan.data.sources[scan];
    let file = plan.data.snapshot.file_in_source(snapshot_split.file);
    let mut projection = plan.reader.reads[scan].projection.clone();
    if projection.is_empty() {
        projection = (0..source.schema().fields().len()).collect();
    }
    let mut inputs = vec![None; wanted.len()];
    if source.access() == Access::Direct {
        let rows: Vec<(u32, u64)> = wanted.iter().map(|&row| (file, row)).collect();
        let (batch, failed) = source.fetch(&rows, &projection).await?;
        for (at, input) in inputs.iter_mut().enumerate() {
            if failed.iter().all(|error| error.row != at) {
                *input = input_of(bytes(&batch, at)?);
            }
        }
        return Ok(inputs);
    }
    let scan = Scan {
        projection,
        prune: None,
        keep: None,
    };
    let mut stored = source.read_split(file as usize, snapshot_split.split as usize, &scan);
    while let Some(stored) = stored.next().await {
        let stored = stored?;
        for (at, row) in wanted.iter().enumerate() {
            if let Ok(found) = stored.numbers.binary_search(row) {
                inputs[at] = input_of(bytes(&stored.batch, found)?);
            }
        }
    }
    Ok(inputs)
}

/// Returns the input of row `row`: the value of the binary column if `batch` has exactly one,
/// otherwise the whole row as a line of JSON.
fn bytes(batch: &RecordBatch, row: usize) -> Result<Option<Vec<u8>>> {
    let binary = |of: &DataType| matches!(of, DataType::Binary | DataType::LargeBinary);
    let mut columns = batch.columns().iter().filter(|c| binary(c.data_type()));
    if let (Some(only), None) = (columns.next(), columns.next()) {
        if only.is_null(row) {
            return Ok(None);
        }
        return Ok(Some(match only.data_type() {
            DataType::Binary => only.as_binary::<i32>().value(row).to_vec(),
            _ => only.as_binary::<i64>().value(row).to_vec(),
        }));
    }
    let mut line = Vec::new();
    let mut writer = LineDelimitedWriter::new(&mut line);
    writer.write(&batch.slice(row, 1))?;
    writer.finish()?;
    drop(writer);
    line.truncate(line.trim_ascii_end().len());
    Ok(Some(line))
}
