//! Checks of the manifests and rows that workers send about sources. They are untrusted input.

use std::ops::Range;

use arrow::array::{Array, LargeBinaryArray, RecordBatch, UInt64Array};
use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::{DataFusionError, Result as EngineResult, exec_err};
use forebay_runtime::source::{Source, SourceFile, StoredRows};

use crate::engine::LeaseOutput;

/// Number of rows that no source has. Sums of row numbers below it do not overflow.
const MAX_ROWS: u64 = 1 << 62;

/// Decodes the `count` files of a manifest.
pub(crate) fn files_of(output: &LeaseOutput, count: u64) -> EngineResult<Vec<SourceFile>> {
    let mut files = Vec::new();
    for batch in &output.batches {
        let column = batch.columns().first();
        let Some(values) = column.and_then(|c| c.as_any().downcast_ref::<LargeBinaryArray>())
        else {
            return wrong(output);
        };
        for value in values.iter().flatten() {
            let some: Vec<SourceFile> = postcard::from_bytes(value).map_err(external)?;
            files.extend(some);
        }
    }
    if files.len() as u64 != count || !is_sound(&files) {
        return wrong(output);
    }
    Ok(files)
}

/// True if the rows of all files together can be numbered, and the splits of each file follow each
/// other.
fn is_sound(files: &[SourceFile]) -> bool {
    let mut all = 0_u64;
    files.iter().all(|file| {
        let mut next = 0_u64;
        file.splits.iter().all(|split| {
            let follows = split.first_row >= next;
            next = split.first_row.saturating_add(split.rows);
            all = all.saturating_add(split.rows);
            follows && next < MAX_ROWS && all < MAX_ROWS
        })
    })
}

/// The rows of a split that a worker may send.
#[derive(Debug, Clone)]
pub(crate) struct ExpectedRows {
    /// Numbers of the rows in the file.
    numbers: Range<u64>,
    schema: Schema,
}

impl ExpectedRows {
    /// Returns the rows of a split of `source`, given by the index of the file and its index in the
    /// file, with the columns `projection`.
    pub(crate) fn of(
        source: &dyn Source,
        (file, split): (usize, usize),
        projection: &[usize],
    ) -> Self {
        let files = &source.manifest().files;
        let split = files.get(file).and_then(|file| file.splits.get(split));
        let numbers = split.map(|split| split.first_row..split.first_row + split.rows);
        Self {
            numbers: numbers.unwrap_or_default(),
            schema: projected(source.schema(), projection),
        }
    }

    /// Separates the numbers of rows, which are the last column, from the rows.
    pub(crate) fn stored_rows(
        &self,
        batch: &RecordBatch,
        output: &LeaseOutput,
    ) -> EngineResult<StoredRows> {
        let numbers = batch.columns().split_last().map(|(last, _)| last);
        let numbers = numbers.and_then(|last| last.as_any().downcast_ref::<UInt64Array>());
        let Some(numbers) = numbers else {
            return wrong(output);
        };
        let columns: Vec<usize> = (0..batch.num_columns() - 1).collect();
        let batch = batch.project(&columns)?;
        let numbers = numbers.values().to_vec();
        let are_known = numbers.iter().all(|number| self.numbers.contains(number));
        if !are_known || !numbers.is_sorted() || !has_types(&batch, &self.schema) {
            return wrong(output);
        }
        Ok(StoredRows { batch, numbers })
    }
}

/// Returns the columns of `schema` with the given indices. Indices of no column are left out.
pub(crate) fn projected(schema: &Schema, projection: &[usize]) -> Schema {
    let fields = projection.iter().filter_map(|&at| schema.fields().get(at));
    Schema::new(fields.cloned().collect::<Vec<_>>())
}

/// True if the columns of `batch` have the types of `expected`.
pub(crate) fn has_types(batch: &RecordBatch, expected: &Schema) -> bool {
    let (found, expected) = (batch.schema_ref().fields(), expected.fields());
    let is_same = |(a, b): (&FieldRef, &FieldRef)| a.data_type() == b.data_type();
    found.len() == expected.len() && found.iter().zip(expected).all(is_same)
}

pub(crate) fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Returns the error of a worker that sent something else than it was asked for.
pub(crate) fn wrong<T>(output: &LeaseOutput) -> EngineResult<T> {
    exec_err!("worker {} answered another request", output.worker.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};
    use arrow::datatypes::{DataType, Field};
    use forebay_runtime::source::Split;

    use super::*;
    use crate::engine::WorkerId;

    fn output(column: ArrayRef) -> LeaseOutput {
        LeaseOutput {
            worker: WorkerId("w".into()),
            batches: vec![RecordBatch::try_from_iter([("c", column)]).unwrap()],
            summary: bytes::Bytes::new(),
        }
    }

    /// Decodes a manifest with one file, which has the splits `of_file`.
    fn sent(of_file: &[(u64, u64)], count: u64) -> EngineResult<Vec<SourceFile>> {
        let split = |&(first_row, rows)| Split {
            first_row,
            rows,
            bytes: 1,
        };
        let splits: Vec<Split> = of_file.iter().map(split).collect();
        // A file is encoded as the tuple of its fields, and a hash as 8 bytes.
        let file = ("f", 3_u64, None::<String>, [0_u8; 8], None::<i128>, splits);
        let bytes = postcard::to_stdvec(&vec![file]).unwrap();
        let column = LargeBinaryArray::from_iter_values([bytes]);
        files_of(&output(Arc::new(column)), count)
    }

    #[test]
    fn manifests_are_checked() {
        assert_eq!(sent(&[(0, 2), (2, 3)], 1).unwrap()[0].rows(), 5);
        assert!(sent(&[(0, 2)], 2).is_err(), "there is one file");
        assert!(
            sent(&[(0, 2), (1, 3)], 1).is_err(),
            "row 1 is in two splits"
        );
        assert!(sent(&[(0, u64::MAX)], 1).is_err());
        assert!(sent(&[(u64::MAX, 1)], 1).is_err());
        let number: ArrayRef = Arc::new(UInt64Array::from(vec![1]));
        assert!(files_of(&output(number), 0).is_err());
        let garbage: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values([[0xff_u8; 9]]));
        assert!(files_of(&output(garbage), 1).is_err());
    }

    #[test]
    fn rows_are_checked() {
        let expected = ExpectedRows {
            numbers: 10..20,
            schema: Schema::new(vec![Field::new("id", DataType::Int64, true)]),
        };
        let received = |numbers: Vec<u64>, ids: ArrayRef| {
            let numbers: ArrayRef = Arc::new(UInt64Array::from(numbers));
            let batch = RecordBatch::try_from_iter([("id", ids), ("n", numbers)]).unwrap();
            let output = output(Arc::new(UInt64Array::from(vec![1])));
            let rows = expected.stored_rows(&batch, &output);
            rows.map(|rows| rows.numbers)
        };
        let ids = || Arc::new(Int64Array::from(vec![7, 8])) as ArrayRef;
        assert_eq!(received(vec![10, 19], ids()).unwrap(), [10, 19]);
        assert!(
            received(vec![10, 20], ids()).is_err(),
            "row 20 is in another split"
        );
        assert!(received(vec![11, 10], ids()).is_err(), "the order is wrong");
        let texts = Arc::new(LargeBinaryArray::from_iter_values([[1], [2]])) as ArrayRef;
        assert!(received(vec![10, 11], texts).is_err(), "the type is wrong");
    }
}
