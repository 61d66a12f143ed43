//! Packed rows of splits, of which the windows of several passes are made up.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, internal_err};

use super::packed::{PackedColumns, dense, in_schema_order};

/// Bit of the number of a row that is packed. The bits below it hold the index of the row's split in
/// the stage, then the index of the row in its split.
const PACKED: u64 = 1 << 63;
/// Number of bits that hold the index of a row in its split.
const ROW_BITS: u32 = u32::BITS;

/// The rows of a split, with all columns packed.
#[derive(Debug)]
pub(crate) struct PackedRows(PackedColumns);

impl PackedRows {
    /// Packs the rows of `batches`. Returns `None` if a column cannot be packed. Works on the threads of the
    /// current rayon pool.
    pub(super) fn of(batches: &[RecordBatch]) -> Option<Self> {
        let (mut columns, _) = all_columns(batches)?;
        columns.pack(&dense(batches));
        Some(Self(columns))
    }

    /// Returns the memory that the packed rows of `batches` take, in bytes; `None` if a column cannot be packed.
    pub(super) fn bytes_of(batches: &[RecordBatch]) -> Option<usize> {
        let (columns, rows) = all_columns(batches)?;
        Some(columns.bytes_of(rows))
    }

    /// Returns the memory that the rows take, in bytes.
    pub(crate) fn memory_size(&self) -> usize {
        self.0.memory_size()
    }

    /// Returns the rows as a batch of `schema`.
    pub(super) fn to_batch(&self, schema: &SchemaRef) -> Result<RecordBatch> {
        let numbers: Vec<u64> = (0..self.0.rows() as u64).collect();
        let columns = self.0.take(&numbers, |row| self.0.row(row as usize))?;
        in_schema_order(columns, numbers.len(), schema)
    }
}

/// Returns the packed form of all columns of `batches`, and the number of rows; `None` if a column cannot
/// be packed, or if there are more rows than a number can name.
fn all_columns(batches: &[RecordBatch]) -> Option<(PackedColumns, usize)> {
    let columns = PackedColumns::choose(batches)?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let are_all = columns.columns() == batches.first()?.num_columns();
    (are_all && u32::try_from(rows).is_ok()).then_some((columns, rows))
}

/// The packed splits of a stage.
#[derive(Debug, Default)]
pub(super) struct PackedSplits {
    /// The rows of each split. Their columns have the same places in each row, since they are those of
    /// one schema.
    splits: Vec<Arc<PackedRows>>,
}

impl PackedSplits {
    /// Appends the rows of a split, and returns the number of its first row.
    pub(super) fn push(&mut self, rows: Arc<PackedRows>) -> u64 {
        let base = PACKED | (self.splits.len() as u64) << ROW_BITS;
        self.splits.push(rows);
        base
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.splits.is_empty()
    }

    /// Returns the rows with the numbers `numbers` as a batch of `schema`. Fails if there is no row with one of
    /// the numbers.
    pub(super) fn take(&self, numbers: &[u64], schema: &SchemaRef) -> Result<RecordBatch> {
        let Some(first) = self.splits.first() else {
            return internal_err!("a stage has no packed rows, and was asked for some");
        };
        let row = |number: u64| {
            let split = self.splits.get(((number & !PACKED) >> ROW_BITS) as usize)?;
            split.0.row(number as u32 as usize)
        };
        in_schema_order(first.0.take(numbers, row)?, numbers.len(), schema)
    }
}

/// Returns true if the row with this number is packed.
pub(super) const fn is_packed(number: u64) -> bool {
    number & PACKED != 0
}
