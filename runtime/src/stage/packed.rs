//! Packed columns: narrow columns whose values are stored row by row.
//!
//! Random rows of several arrays cost a cache miss for each array; a packed row costs one. Database systems
//! choose this layout for random access, too (Zukowski, Nes and Boncz, "DSM vs. NSM: CPU performance tradeoffs in
//! block-oriented query processing", DaMoN 2008).

use arrow::array::{Array, ArrayData, ArrayRef, RecordBatch, make_array};
use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, DataType};
use datafusion::common::Result;
use forebay_udfs::huge_pages::prefer_huge_pages;
use rayon::prelude::*;

use crate::order::row_bitmap::RowBitmap;

/// Maximum number of 64-bit words in a packed row.
const MAX_WORDS: usize = 16;
/// Number of rows that are packed or gathered column by column. They stay in the first level of the
/// processor's cache meanwhile.
const GATHERED_ROWS: usize = 128;

/// The values of some columns of a batch, stored row by row.
#[derive(Debug)]
pub(super) struct PackedColumns {
    words: Vec<u64>,
    /// Number of words in a row.
    stride: usize,
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
    word: usize,
    /// Number of bits in the word below the value.
    shift: u32,
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
    /// nulls, as far as they fit into a row. Returns `None` if these are fewer than two, or much smaller
    /// than a word.
    pub(super) fn choose(batches: &[RecordBatch]) -> Option<Self> {
        let mut fixed: Vec<(usize, usize)> = { 0..batches.first()?.num_columns() }
            .filter(|&index| batches.iter().all(|b| b.column(index).null_count() == 0))
            .filter_map(|index| {
                let bytes = packed_bytes(batches[0].column(index).data_type())?;
                Some((bytes, index))
            })
            .collect();
        // Wide values first, so that no value spans two words.
        fixed.sort_by_key(|&(bytes, index)| (std::cmp::Reverse(bytes), index));
        let (mut columns, mut end) = (Vec::new(), 0);
        for (bytes, index) in fixed {
            if end + bytes > MAX_WORDS * size_of::<u64>() {
                break;
            }
            columns.push(PackedColumn {
                index,
                data_type: batches[0].column(index).data_type().clone(),
                bytes,
                word: end / size_of::<u64>(),
                shift: (end % size_of::<u64>() * 8) as u32,
            });
            end += bytes;
        }
        let stride = end.div_ceil(size_of::<u64>());
        // Rows of a few bytes would take several times their memory.
        let is_worth = columns.len() > 1 && stride * size_of::<u64>() <= 2 * end;
        is_worth.then_some(Self {
            words: Vec::new(),
            stride,
            columns,
        })
    }

    /// Packs the rows of `parts`, one part after the other. Works on the threads of the current rayon
    /// pool.
    pub(super) fn pack(&mut self, parts: &[PackedPart<'_>]) {
        let (stride, columns) = (self.stride, &self.columns);
        let places: usize = parts.iter().map(|part| part.places).sum();
        self.words = vec![0; places * stride];
        prefer_huge_pages(&self.words);
        let mut rest = &mut self.words[..];
        let mut work = Vec::with_capacity(parts.len());
        for part in parts {
            let (rows, behind) = std::mem::take(&mut rest).split_at_mut(part.places * stride);
            work.push((part, rows));
            rest = behind;
        }
        work.into_par_iter()
            .for_each(|(part, rows)| part.pack(columns, stride, rows));
    }

    /// Returns the memory that `places` places for rows take, in bytes.
    pub(super) const fn bytes_of(&self, places: usize) -> usize {
        places.saturating_mul(self.stride * size_of::<u64>())
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
        self.words.capacity() * size_of::<u64>()
    }

    /// Returns the rows `indices`, as arrays with the indices of their columns.
    pub(super) fn take(&self, indices: &[u64]) -> Result<Vec<(usize, ArrayRef)>> {
        let mut taken: Vec<Values> = { self.columns.iter() }
            .map(|column| Values::new(column.bytes, indices.len()))
            .collect();
        for indices in indices.chunks(GATHERED_ROWS) {
            for (column, values) in self.columns.iter().zip(&mut taken) {
                let words = { indices.iter() }
                    .map(|&row| self.words[row as usize * self.stride + column.word]);
                values.extend(words, column.shift);
            }
        }
        let taken = self.columns.iter().zip(taken).map(|(column, values)| {
            let data = ArrayData::builder(column.data_type.clone())
                .len(indices.len())
                .add_buffer(values.into_buffer());
            Ok((column.index, make_array(data.build()?)))
        });
        taken.collect()
    }
}

/// Returns the size in bytes of a packed value of this type; `None` if such values are not packed.
fn packed_bytes(data_type: &DataType) -> Option<usize> {
    // Intervals are structures, which arrays may align less than the integer of their size.
    let is_integer_sized = !matches!(data_type, DataType::Interval(_));
    let bytes = data_type.primitive_width().filter(|_| is_integer_sized)?;
    matches!(bytes, 1 | 2 | 4 | 8).then_some(bytes)
}

impl PackedPart<'_> {
    /// Writes the rows to their places in `rows`, which has zeros.
    fn pack(&self, columns: &[PackedColumn], stride: usize, rows: &mut [u64]) {
        let mut taken = self.taken.map(|taken| taken.offsets(0..u32::MAX));
        let mut scratch = vec![0; GATHERED_ROWS * stride];
        let mut place = 0;
        for batch in self.batches {
            let columns: Vec<(&PackedColumn, ArrayData)> = { columns.iter() }
                .map(|column| (column, batch.column(column.index).to_data()))
                .collect();
            for first in (0..batch.num_rows()).step_by(GATHERED_ROWS) {
                let count = GATHERED_ROWS.min(batch.num_rows() - first);
                let packed = &mut scratch[..count * stride];
                packed.fill(0);
                for (column, data) in &columns {
                    column.pack(data, first, packed, stride);
                }
                match &mut taken {
                    Some(taken) => {
                        for (row, at) in packed.chunks_exact(stride).zip(taken) {
                            rows[at as usize * stride..][..stride].copy_from_slice(row);
                        }
                    }
                    None => rows[place * stride..][..packed.len()].copy_from_slice(packed),
                }
                place += count;
            }
        }
    }
}

impl PackedColumn {
    /// Writes the values of `data`, the column of a batch, from row `first` on to `rows`.
    fn pack(&self, data: &ArrayData, first: usize, rows: &mut [u64], stride: usize) {
        match self.bytes {
            1 => self.pack_as::<u8>(data, first, rows, stride),
            2 => self.pack_as::<u16>(data, first, rows, stride),
            4 => self.pack_as::<u32>(data, first, rows, stride),
            _ => self.pack_as::<u64>(data, first, rows, stride),
        }
    }

    fn pack_as<T: ArrowNativeType + Into<u64>>(
        &self,
        data: &ArrayData,
        first: usize,
        rows: &mut [u64],
        stride: usize,
    ) {
        let rows = rows.chunks_exact_mut(stride);
        let buffer = data.buffers()[0].clone();
        let values = ScalarBuffer::<T>::new(buffer, data.offset() + first, rows.len());
        for (row, &value) in rows.zip(&values[..]) {
            row[self.word] |= value.into() << self.shift;
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

    /// Appends the values that lie `shift` bits above the lowest bit of `words`.
    fn extend(&mut self, words: impl Iterator<Item = u64>, shift: u32) {
        match self {
            Self::U8(values) => values.extend(words.map(|word| (word >> shift) as u8)),
            Self::U16(values) => values.extend(words.map(|word| (word >> shift) as u16)),
            Self::U32(values) => values.extend(words.map(|word| (word >> shift) as u32)),
            Self::U64(values) => values.extend(words),
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
