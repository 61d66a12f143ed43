//! Joins the batches of a stage, because a row of one array is found quicker than one of many.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result;
use rayon::prelude::*;

use super::packed::{PackedColumns, PackedPart, dense, in_schema_order};
use crate::order::row_bitmap::RowBitmap;

/// Mean size of a row in bytes from which copying it takes longer than finding it.
const MAX_ROW_BYTES: usize = 256;
/// Size of a column in bytes up to which its offsets fit their type.
const MAX_COLUMN_BYTES: usize = 1 << 30;

/// Size of joined rows at most, as a multiple of the size of their batches.
pub(super) const JOINED_SIZE: usize = 2;

/// Returns true if `batches`, whose columns are [simple](is_simple), gain from being joined, and fit
/// into one batch.
pub(super) fn is_worth(batches: &[RecordBatch]) -> bool {
    let [first, _, ..] = batches else {
        return false;
    };
    let sizes = (0..first.num_columns()).map(|column| {
        let arrays = batches.iter().map(|batch| batch.column(column));
        arrays
            .map(|array| array.get_array_memory_size())
            .sum::<usize>()
    });
    let (mut all, mut largest) = (0, 0);
    for size in sizes {
        all += size;
        largest = largest.max(size);
    }
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    largest <= MAX_COLUMN_BYTES && all / rows.max(1) <= MAX_ROW_BYTES
}

/// Returns true if an array of this type has one buffer of values, and no children.
pub(super) fn is_simple(data_type: &DataType) -> bool {
    data_type.is_primitive()
        || matches!(
            data_type,
            DataType::Boolean | DataType::Utf8 | DataType::Binary
        )
}

/// The rows of consecutive batches that belong together.
#[derive(Debug)]
pub(crate) struct StagePart {
    /// Number of places for rows: `taken` counts them.
    pub(crate) places: u64,
    /// The places that have a row; `None` if all have.
    pub(crate) taken: Option<Arc<RowBitmap>>,
}

impl StagePart {
    fn rows(&self) -> u64 {
        self.taken.as_ref().map_or(self.places, |taken| taken.len())
    }
}

/// The rows of several batches, joined.
#[derive(Debug)]
pub(super) struct JoinedRows {
    packed: Option<PackedColumns>,
    /// The columns that are not packed, with their indices.
    others: Vec<(usize, ArrayRef)>,
    /// Number of rows, or of places for rows if the rows are spread.
    rows: usize,
    /// True if the rows are at the places of their parts.
    pub(super) is_spread: bool,
}

impl JoinedRows {
    /// Joins `batches`, whose columns are [simple](is_simple) and whose rows are those of `parts`. If all
    /// columns can be packed and the places take no more than [`JOINED_SIZE`], the rows are spread to their places, where
    /// they are found without being counted. Works on the threads of the current rayon pool.
    pub(super) fn of(batches: &[RecordBatch], parts: &[StagePart]) -> Result<Self> {
        let mut packed = PackedColumns::choose(batches);
        let columns = batches.first().map_or(0, RecordBatch::num_columns);
        let mut rows = batches.iter().map(RecordBatch::num_rows).sum();
        let mut is_spread = false;
        if let Some(packed) = &mut packed {
            let places = parts.iter().map(|part| part.places).sum::<u64>() as usize;
            let sizes = batches.iter().map(RecordBatch::get_array_memory_size);
            let may_spread = packed.columns() == columns
                && packed.bytes_of(places) <= JOINED_SIZE * sizes.sum::<usize>();
            match spread(batches, parts).filter(|_| may_spread) {
                Some(parts) => {
                    packed.pack(&parts);
                    (is_spread, rows) = (true, places);
                }
                None => packed.pack(&dense(batches)),
            }
        }
        let others: Vec<usize> = { 0..columns }
            .filter(|&index| packed.as_ref().is_none_or(|packed| !packed.has(index)))
            .collect();
        let others = others.into_par_iter().map(|index| {
            let arrays: Vec<&dyn Array> = { batches.iter() }
                .map(|batch| batch.column(index).as_ref())
                .collect();
            Ok((index, concat(&arrays)?))
        });
        Ok(Self {
            others: others.collect::<Result<_>>()?,
            packed,
            rows,
            is_spread,
        })
    }

    /// Returns the number of rows, or of places for rows if the rows are spread.
    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the memory that the rows take, in bytes.
    pub(super) fn memory_size(&self) -> usize {
        let others = self.others.iter();
        let others: usize = others.map(|(_, array)| array.get_array_memory_size()).sum();
        others + self.packed.as_ref().map_or(0, PackedColumns::memory_size)
    }

    /// Returns the rows `indices` as a batch of `schema`.
    pub(super) fn take(&self, indices: &[u64], schema: &SchemaRef) -> Result<RecordBatch> {
        let mut columns = match &self.packed {
            Some(packed) => packed.take(indices, |row| packed.row(row as usize))?,
            None => Vec::new(),
        };
        if !self.others.is_empty() {
            let rows = UInt64Array::from_iter_values(indices.iter().copied());
            for (index, array) in &self.others {
                columns.push((*index, take(array, &rows, None)?));
            }
        }
        in_schema_order(columns, indices.len(), schema)
    }
}

/// Returns `parts` with their batches; `None` if no part has gaps, or if a batch has rows of two parts.
fn spread<'a>(batches: &'a [RecordBatch], parts: &'a [StagePart]) -> Option<Vec<PackedPart<'a>>> {
    if parts.iter().all(|part| part.taken.is_none()) {
        return None;
    }
    let mut rest = batches;
    let parts = parts.iter().map(|part| {
        let (mut rows, mut count) = (0, 0);
        while rows < part.rows() {
            rows += rest.get(count)?.num_rows() as u64;
            count += 1;
        }
        let (own, behind) = rest.split_at(count);
        rest = behind;
        (rows == part.rows()).then_some(PackedPart {
            batches: own,
            places: usize::try_from(part.places).ok()?,
            taken: part.taken.as_deref(),
        })
    });
    let parts = parts.collect::<Option<Vec<_>>>()?;
    rest.is_empty().then_some(parts)
}
