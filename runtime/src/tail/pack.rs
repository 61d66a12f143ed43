//! Packing: concatenates several sequences into one row of a fixed length, with segment ids and
//! positions.

use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeListArray, Int32Array, ListArray, RecordBatch};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::internal_err;
use forebay_planner::batches::{element, filler};
use forebay_planner::clauses::{Pack, Pad};

use super::pad::elements;
use crate::error::Result;

/// The conversion of the rows of a pack into one row.
///
/// The packed column has `n` elements in every pack. `<column>_segment_ids` numbers the sequences
/// of a pack from 1, and is 0 in the free elements at the end of the pack. `<column>_positions`
/// numbers the elements of each sequence from 0. Other columns become lists with one value per
/// sequence.
#[derive(Debug)]
pub(super) struct Packing {
    /// Index of the packed column.
    column: usize,
    /// Number of elements in a pack.
    into: usize,
    /// An array of one element, which fills the free elements of a pack.
    filler: ArrayRef,
    schema: SchemaRef,
}

impl Packing {
    /// Creates the packing of rows with schema `rows` into batches with schema `packs`. Free
    /// elements get the value that PAD specifies for the column, or 0.
    pub(super) fn try_new(
        pack: &Pack,
        pads: &[Pad],
        rows: &Schema,
        packs: SchemaRef,
    ) -> Result<Self> {
        let column = rows.index_of(&pack.column)?;
        let item = element("PACK", rows.field(column))?;
        Ok(Self {
            column,
            into: pack.into.get() as usize,
            filler: filler(pads, &pack.column, item.data_type())?,
            schema: packs,
        })
    }

    /// Packs the rows with these columns. `packs` holds the number of rows in each pack.
    pub(super) fn pack(&self, columns: &[ArrayRef], packs: &[u32]) -> Result<RecordBatch> {
        let mut packed = Vec::with_capacity(columns.len() + 2);
        for (index, column) in columns.iter().enumerate() {
            if index == self.column {
                packed.extend(self.sequences(column, packs)?);
                continue;
            }
            let field = self.schema.field(packed.len());
            let DataType::List(item) = field.data_type() else {
                continue;
            };
            let offsets = OffsetBuffer::from_lengths(packs.iter().map(|&rows| rows as usize));
            let list = ListArray::try_new(Arc::clone(item), offsets, Arc::clone(column), None);
            packed.push(Arc::new(list?));
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), packed)?)
    }

    fn sequences(&self, column: &ArrayRef, packs: &[u32]) -> Result<[ArrayRef; 3]> {
        let (values, ranges) = elements(column)?;
        let size = packs.len() * self.into;
        let mut picks = Vec::with_capacity(size);
        let (mut segments, mut positions) = (Vec::with_capacity(size), Vec::with_capacity(size));
        let mut rows = ranges.into_iter();
        for (nth, &count) in packs.iter().enumerate() {
            for (segment, range) in (1..).zip(rows.by_ref().take(count as usize)) {
                // A sequence that is too long for a pack is an error of its row. Such a row was
                // skipped or nulled before.
                for (position, at) in (0..).zip(range) {
                    picks.push((0, at));
                    segments.push(segment);
                    positions.push(position);
                }
            }
            let full = (nth + 1) * self.into;
            if picks.len() > full {
                return Ok(internal_err!(
                    "a pack holds more than its {} elements",
                    self.into
                )?);
            }
            picks.resize(full, (1, 0));
            segments.resize(full, 0);
            positions.resize(full, 0);
        }
        let values = arrow::compute::interleave(&[values.as_ref(), self.filler.as_ref()], &picks);
        let list = |name: usize, values: ArrayRef| -> Result<ArrayRef> {
            let DataType::FixedSizeList(item, n) = self.schema.field(name).data_type() else {
                return Ok(values);
            };
            let list = FixedSizeListArray::try_new(Arc::clone(item), *n, values, None);
            Ok(Arc::new(list?))
        };
        Ok([
            list(self.column, values?)?,
            list(self.column + 1, Arc::new(Int32Array::from(segments)))?,
            list(self.column + 2, Arc::new(Int32Array::from(positions)))?,
        ])
    }
}

/// Returns the number of rows in each pack after failed rows were settled. `picks` holds the
/// indices of the rows that remain, in order. A pack may become empty.
pub(super) fn left(packs: &[u32], picks: &[usize]) -> Vec<u32> {
    let (mut start, mut picks) = (0, picks.iter().peekable());
    let of_pack = packs.iter().map(|&rows| {
        let end = start + rows as usize;
        start = end;
        let mut kept = 0;
        while picks.next_if(|&&row| row < end).is_some() {
            kept += 1;
        }
        kept
    });
    of_pack.collect()
}
