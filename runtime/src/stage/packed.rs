//! Packed columns: narrow columns whose values are stored row by row.
//!
//! Random rows of several arrays cost a cache miss for each array; a packed row costs one. Database systems
//! choose this layout for random access, too (Zukowski, Nes and Boncz, "DSM vs. NSM: CPU performance tradeoffs in
//! block-oriented query processing", DaMoN 2008).

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, RecordBatch, make_array};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{Result, internal_datafusion_err};
use forebay_udfs::huge_pages::prefer_huge_pages;
use rayon::prelude::*;

use crate::order::row_bitmap::RowBitmap;
use crate::record_batch::record_batch;

/// Maximum size of a packed row in bytes.
const MAX_ROW_BYTES: usize = 128;
/// Number of rows that are packed or gathered column by column. They stay in the first level of the
/// processor's cache meanwhile.
const GATHERED_ROWS: usize = 128;

/// The values of some columns of a batch, stored row by row.
#[derive(Debug)]
pub(super) struct PackedColumns {
    /// The rows, each of which has the values of its columns without padding between them.
    bytes: Vec<u8>,
    /// Size of a row in bytes.
    row_bytes: usize,
    columns: Vec<PackedColumn>,
}

/// The place of a column in each packed row.
#[derive(Debug)]
struct PackedColumn {
    /// Index of the column in the batch.
    index: usize,
    data_type: DataType,
    /// Size of a value in bytes: 1, 2, 4 or 8.
    bytes: usize,
    /// Index of the value's first byte in the row.
    at: usize,
}

/// Consecutive batches, and the places of their rows.
#[derive(Debug)]
pub(super) struct PackedPart<'a> {
    pub(super) batches: &'a [RecordBatch],
    /// Number of places for rows.
    pub(super) places: usize,
    /// The places that have a row; `None` if all have.
    pub(super) taken: Option<&'a RowBitmap>,
}

impl PackedColumns {
    /// Chooses the columns of `batches` to pack: those that have values of at most 64 bits and no
    /// nulls, as far as they fit into a row. Returns `None` if these are fewer than two.
    pub(super) fn choose(batches: &[RecordBatch]) -> Option<Self> {
        let mut fixed: Vec<(usize, usize)> = { 0..batches.first()?.num_columns() }
            .filter(|&index| batches.iter().all(|b| b.column(index).null_count() == 0))
            .filter_map(|index| {
                let bytes = packed_bytes(batches[0].column(index).data_type())?;
                Some((bytes, index))
            })
            .collect();
        // Wide values first, so that they are aligned as far as rows are.
        fixed.sort_by_key(|&(bytes, index)| (std::cmp::Reverse(bytes), index));
        let (mut columns, mut row_bytes) = (Vec::new(), 0);
        for (bytes, index) in fixed {
            if row_bytes + bytes > MAX_ROW_BYTES {
                break;
            }
            columns.push(PackedColumn {
                index,
                data_type: batches[0].column(index).data_type().clone(),
                bytes,
                at: row_bytes,
            });
            row_bytes += bytes;
        }
        (columns.len() > 1).then_some(Self {
            bytes: Vec::new(),
            row_bytes,
            columns,
        })
    }

    /// Packs the rows of `parts`, one part after the other. Works on the threads of the current rayon
    /// pool.
    pub(super) fn pack(&mut self, parts: &[PackedPart<'_>]) {
        let (row_bytes, columns) = (self.row_bytes, &self.columns);
        let places: usize = parts.iter().map(|part| part.places).sum();
        self.bytes = vec![0; places * row_bytes];
        prefer_huge_pages(&self.bytes);
        let mut rest = &mut self.bytes[..];
        let mut work = Vec::with_capacity(parts.len());
        for part in parts {
            let (rows, behind) = std::mem::take(&mut rest).split_at_mut(part.places * row_bytes);
            work.push((part, rows));
            rest = behind;
        }
        work.into_par_iter()
            .for_each(|(part, rows)| part.pack(columns, row_bytes, rows));
    }

    /// Returns the memory that `places` places for rows take, in bytes.
    pub(super) const fn bytes_of(&self, places: usize) -> usize {
        places.saturating_mul(self.row_bytes)
    }

    /// Returns the number of columns.
    pub(super) const fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Returns true if the column at `index` of the batches is packed.
    pub(super) fn has(&self, index: usize) -> bool {
        self.columns.iter().any(|column| column.index == index)
    }

    /// Returns the memory that the rows take, in bytes.
    pub(super) fn memory_size(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the number of rows.
    pub(super) const fn rows(&self) -> usize {
        self.bytes.len() / self.row_bytes
    }

    /// Returns the values of a row; `None` if there are fewer rows.
    #[inline]
    pub(super) fn row(&self, row: usize) -> Option<&[u8]> {
        let start = row.checked_mul(self.row_bytes)?;
        self.bytes.get(start..)?.get(..self.row_bytes)
    }

    /// Returns the rows with the numbers `numbers`, as arrays with the indices of their columns. `row` finds a
    /// row, here or among others that are packed alike.
    ///
    /// # Errors
    /// Fails if `row` does not find a row.
    pub(super) fn take<'a>(
        &self,
        numbers: &[u64],
        row: impl Fn(u64) -> Option<&'a [u8]>,
    ) -> Result<Vec<(usize, ArrayRef)>> {
        let mut taken: Vec<Values> = { self.columns.iter() }
            .map(|column| Values::new(column.bytes, numbers.len()))
            .collect();
        let mut rows: [&[u8]; GATHERED_ROWS] = [&[]; GATHERED_ROWS];
        for numbers in numbers.chunks(GATHERED_ROWS) {
            for (found, &number) in rows.iter_mut().zip(numbers) {
                *found = row(number)
                    .ok_or_else(|| internal_datafusion_err!("there is no packed row {number}"))?;
            }
            let rows = &rows[..numbers.len()];
            for (column, values) in self.columns.iter().zip(&mut taken) {
                values.extend(rows, column.at);
            }
        }
        let taken = self.columns.iter().zip(taken).map(|(column, values)| {
            let data = ArrayData::builder(column.data_type.clone())
                .len(numbers.len())
                .add_buffer(values.into_buffer());
            Ok((column.index, make_array(data.build()?)))
        });
        taken.collect()
    }
}

/// Returns a batch of `rows` rows with `columns`, which are given with their indices in `schema`.
pub(super) fn in_schema_order(
    mut columns: Vec<(usize, ArrayRef)>,
    rows: usize,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    columns.sort_unstable_by_key(|(index, _)| *index);
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    Ok(record_batch(Arc::clone(schema), columns, rows)?)
}

/// Returns the size in bytes of a packed value of this type; `None` if such values are not packed.
fn packed_bytes(data_type: &DataType) -> Option<usize> {
    // Intervals are structures, which arrays may align less than the integer of their size.
    let is_integer_sized = !matches!(data_type, DataType::Interval(_));
    let bytes = data_type.primitive_width().filter(|_| is_integer_sized)?;
    matches!(bytes, 1 | 2 | 4 | 8).then_some(bytes)
}

/// Returns a part for each batch, without gaps.
pub(super) fn dense(batches: &[RecordBatch]) -> Vec<PackedPart<'_>> {
    let batches = batches.iter().map(|batch| PackedPart {
        batches: std::slice::from_ref(batch),
        places: batch.num_rows(),
        taken: None,
    });
    batches.collect()
}

impl PackedPart<'_> {
    /// Writes the rows to their places in `rows`, which has rows of `row_bytes` bytes.
    fn pack(&self, columns: &[PackedColumn], row_bytes: usize, rows: &mut [u8]) {
        let mut taken = self.taken.map(|taken| taken.offsets(0..u32::MAX));
        let mut scratch = vec![0; GATHERED_ROWS * row_bytes];
        let mut place = 0;
        for batch in self.batches {
            let columns: Vec<(&PackedColumn, ArrayData)> = { columns.iter() }
                .map(|column| (column, batch.column(column.index).to_data()))
                .collect();
            for first in (0..batch.num_rows()).step_by(GATHERED_ROWS) {
                let count = GATHERED_ROWS.min(batch.num_rows() - first);
                let pack = |rows: &mut [u8]| {
                    for (column, data) in &columns {
                        column.pack(data, first, rows, row_bytes);
                    }
                };
                let Some(taken) = &mut taken else {
                    pack(&mut rows[place * row_bytes..][..count * row_bytes]);
                    place += count;
                    continue;
                };
                let packed = &mut scratch[..count * row_bytes];
                pack(packed);
                for (row, at) in packed.chunks_exact(row_bytes).zip(taken) {
                    rows[at as usize * row_bytes..][..row_bytes].copy_from_slice(row);
                }
            }
        }
    }
}

impl PackedColumn {
    /// Writes the values of `data`, the column of a batch, from row `first` on to `rows`.
    fn pack(&self, data: &ArrayData, first: usize, rows: &mut [u8], row_bytes: usize) {
        match self.bytes {
            1 => self.pack_values::<1>(data, first, rows, row_bytes),
            2 => self.pack_values::<2>(data, first, rows, row_bytes),
            4 => self.pack_values::<4>(data, first, rows, row_bytes),
            _ => self.pack_values::<8>(data, first, rows, row_bytes),
        }
    }

    /// As [`pack`](Self::pack), for values of `N` bytes.
    fn pack_values<const N: usize>(
        &self,
        data: &ArrayData,
        first: usize,
        rows: &mut [u8],
        row_bytes: usize,
    ) {
        let (values, _) = data.buffers()[0].as_slice().as_chunks::<N>();
        let values = &values[data.offset() + first..];
        for (row, value) in rows.chunks_exact_mut(row_bytes).zip(values) {
            row[self.at..][..N].copy_from_slice(value);
        }
    }
}

/// The values of a column that are gathered from packed rows.
enum Values {
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
}

impl Values {
    fn new(bytes: usize, rows: usize) -> Self {
        match bytes {
            1 => Self::U8(Vec::with_capacity(rows)),
            2 => Self::U16(Vec::with_capacity(rows)),
            4 => Self::U32(Vec::with_capacity(rows)),
            _ => Self::U64(Vec::with_capacity(rows)),
        }
    }

    /// Appends the values whose first byte in each of `rows` is the one at `at`.
    fn extend(&mut self, rows: &[&[u8]], at: usize) {
        match self {
            Self::U8(values) => values.extend(rows.iter().map(|row| row[at])),
            Self::U16(values) => {
                values.extend(rows.iter().map(|r| u16::from_ne_bytes(bytes(r, at))))
            }
            Self::U32(values) => {
                values.extend(rows.iter().map(|r| u32::from_ne_bytes(bytes(r, at))))
            }
            Self::U64(values) => {
                values.extend(rows.iter().map(|r| u64::from_ne_bytes(bytes(r, at))))
            }
        }
    }

    fn into_buffer(self) -> Buffer {
        match self {
            Self::U8(values) => Buffer::from_vec(values),
            Self::U16(values) => Buffer::from_vec(values),
            Self::U32(values) => Buffer::from_vec(values),
            Self::U64(values) => Buffer::from_vec(values),
        }
    }
}

/// Returns the `N` bytes of `row` from the one at `at` on.
#[inline]
fn bytes<const N: usize>(row: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&row[at..at + N]);
    bytes
}
