//! Padding: extends the sequences of a batch to equal length, and records their original lengths.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, Int32Array, ListArray,
    OffsetSizeTrait,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::interleave;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::internal_err;
use forebay_planner::batches::{element, filler};
use forebay_planner::clauses::Pad;
use forebay_planner::limits::MAX_BATCH_ELEMENTS;

use crate::error::{Error, Result};
use crate::fragment::row_batch::{RowBatch, SlotError};

/// The columns that PAD extends in each batch.
///
/// With `TO n`, a padded column has `n` elements in every row; without it, as many as the longest
/// row of the batch. After each padded column comes the column `<column>_length`, the original
/// number of elements.
#[derive(Debug)]
pub(super) struct Padding {
    columns: Vec<Padded>,
}

#[derive(Debug)]
struct Padded {
    /// Index of the column among the columns before padding.
    column: usize,
    to: Option<usize>,
    filler: ArrayRef,
    item: FieldRef,
    name: String,
}

impl Padding {
    /// Creates the padding that the clauses `pads` specify, for rows with schema `rows`.
    pub(super) fn try_new(pads: &[Pad], rows: &Schema) -> Result<Self> {
        let mut columns = Vec::with_capacity(pads.len());
        for pad in pads {
            let column = rows.index_of(&pad.column)?;
            let item = element("PAD", rows.field(column))?;
            columns.push(Padded {
                column,
                to: pad.to.map(|to| to.get() as usize),
                filler: filler(pads, &pad.column, item.data_type())?,
                item,
                name: pad.column.clone(),
            });
        }
        Ok(Self { columns })
    }

    /// Adds an error to each row with a sequence of more elements than `TO n` allows.
    pub(super) fn check(&self, rows: &mut RowBatch) -> Result<()> {
        for padded in &self.columns {
            let Some(to) = padded.to else { continue };
            let (_, ranges) = elements(&rows.columns[padded.column])?;
            for (row, range) in ranges.into_iter().enumerate() {
                if range.len() > to {
                    let error = SlotError {
                        column: Some(padded.column),
                        operator: format!("PAD {} TO {to}", padded.name),
                        cause: format!(
                            "the sequence has {} elements, more than {to}; filter such rows, or cut the \
                             sequence",
                            range.len()
                        ),
                    };
                    rows.errors.entry(row).or_default().push(error);
                }
            }
        }
        Ok(())
    }

    /// Pads `columns`, the columns of a batch, and adds the length columns.
    pub(super) fn pad(&self, columns: Vec<ArrayRef>) -> Result<Vec<ArrayRef>> {
        let mut out = Vec::with_capacity(columns.len() + self.columns.len());
        for (index, column) in columns.into_iter().enumerate() {
            match self.columns.iter().find(|padded| padded.column == index) {
                Some(padded) => out.extend(padded.pad(&column)?),
                None => out.push(column),
            }
        }
        Ok(out)
    }
}

impl Padded {
    fn pad(&self, column: &ArrayRef) -> Result<[ArrayRef; 2]> {
        let (values, ranges) = elements(column)?;
        let longest = ranges.iter().map(Range::len).max().unwrap_or(0);
        let to = self.to.unwrap_or(longest);
        let lengths = Int32Array::from_iter_values(ranges.iter().map(|range| range.len() as i32));
        let rows = ranges.len();
        if rows.saturating_mul(to) as u64 > MAX_BATCH_ELEMENTS {
            return Err(Error::Config(format!(
                "PAD {}: a batch of {rows} sequences of {to} elements is above the limit of {MAX_BATCH_ELEMENTS} \
                 elements; make batches smaller, or cut the longest sequences",
                self.name
            )));
        }
        let mut picks = Vec::with_capacity(rows * to);
        for (row, range) in ranges.into_iter().enumerate() {
            picks.extend(range.map(|at| (0, at)));
            picks.resize((row + 1) * to, (1, 0));
        }
        let values = interleave(&[values.as_ref(), self.filler.as_ref()], &picks)?;
        let item = Arc::clone(&self.item);
        let list: ArrayRef = if self.to.is_some() {
            let to = to as i32;
            Arc::new(FixedSizeListArray::try_new_with_length(
                item, to, values, None, rows,
            )?)
        } else {
            let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(to, rows));
            Arc::new(ListArray::try_new(item, offsets, values, None)?)
        };
        Ok([list, Arc::new(lengths)])
    }
}

/// Returns the child values of the list column `column`, and for each row, the range of its values.
/// The range of a null row is empty.
pub(super) fn elements(column: &ArrayRef) -> Result<(ArrayRef, Vec<Range<usize>>)> {
    let (values, mut ranges): (_, Vec<_>) = match column.data_type() {
        DataType::List(_) => list_elements(column.as_list::<i32>()),
        DataType::LargeList(_) => list_elements(column.as_list::<i64>()),
        DataType::FixedSizeList(_, size) => {
            let size = *size as usize;
            let ranges = (0..column.len()).map(|row| row * size..(row + 1) * size);
            (column.as_fixed_size_list().values(), ranges.collect())
        }
        other => return Ok(internal_err!("{other} is not a list")?),
    };
    for (row, range) in ranges.iter_mut().enumerate() {
        if column.is_null(row) {
            range.end = range.start;
        }
    }
    Ok((Arc::clone(values), ranges))
}

fn list_elements<O: OffsetSizeTrait>(list: &GenericListArray<O>) -> (&ArrayRef, Vec<Range<usize>>) {
    let ranges = list.value_offsets().windows(2);
    let ranges = ranges.map(|ends| ends[0].as_usize()..ends[1].as_usize());
    (list.values(), ranges.collect())
}
