//! Spilled rows in a temporary file, which can be read by row number.
//!
//! Rows are stored one after the other in the row format of `arrow-row`; their byte offsets in the
//! file are kept in memory. Types that the row format does not reproduce (such as dictionaries,
//! run-end encoding and unions) are stored as small Arrow IPC streams instead.

use std::fs::File;
use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{interleave_record_batch, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow_row::{RowConverter, SortField};
use datafusion::common::{Result, exec_err, internal_err};

use super::error::SpillError;
use super::space::{SpillFile, SpillSpace};

/// Number of bytes that are encoded or read in one call.
const CHUNK_BYTES: usize = 1 << 20;

/// Target size in bytes of a block of rows in the format [`Codec::Blocks`]. To read one row, its
/// whole block is read.
const BLOCK_BYTES: usize = 32 << 10;

/// Largest gap in bytes between two rows that are read in one call. The gap costs little, because
/// the system reads whole pages anyway.
const GAP_BYTES: u64 = 4 << 10;

/// Maximum size in bytes of the encoded rows that one call of `gather` reads. A larger total is an
/// error, because the resulting columns have 32-bit offsets.
const MAX_GATHER_BYTES: u64 = i32::MAX as u64;

/// Rows in a temporary file, and the index of their byte offsets.
#[derive(Debug)]
pub(super) struct Spill {
    schema: SchemaRef,
    codec: Codec,
    file: SpillFile,
    /// End of each stored piece (a row or a block), as a byte offset in the file.
    ends: Vec<u64>,
    /// For each block, the number of rows up to its end; empty if rows are stored separately.
    block_rows: Vec<u64>,
}

/// The storage format of rows.
#[derive(Debug)]
enum Codec {
    /// Each row is stored separately.
    Rows(RowConverter),
    /// Blocks of rows are stored as Arrow IPC streams.
    Blocks,
}

impl Spill {
    pub(super) fn create(schema: &SchemaRef, space: &Arc<SpillSpace>) -> Result<Self> {
        let file = { space.create() }.map_err(|error| SpillError::failed_to("create", error))?;
        let types = schema.fields().iter().map(|field| field.data_type());
        let codec = if !schema.fields().is_empty() && types.clone().all(survives_row_format) {
            let fields = types.map(|t| SortField::new(t.clone()));
            Codec::Rows(RowConverter::new(fields.collect())?)
        } else {
            Codec::Blocks
        };
        Ok(Self {
            schema: Arc::clone(schema),
            codec,
            file,
            ends: Vec::new(),
            block_rows: Vec::new(),
        })
    }

    pub(super) fn rows(&self) -> u64 {
        match self.codec {
            Codec::Rows(_) => self.ends.len() as u64,
            Codec::Blocks => self.block_rows.last().copied().unwrap_or(0),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Returns the memory that the index (`ends` and `block_rows`) takes, in bytes.
    pub(super) fn index_bytes(&self) -> usize {
        (self.ends.capacity() + self.block_rows.capacity()) * size_of::<u64>()
    }

    /// Appends the rows of `batch` to the file. After an error, the spill must not be used any
    /// more.
    pub(super) fn append(&mut self, batch: &RecordBatch) -> Result<()> {
        let aim = match self.codec {
            Codec::Rows(_) => CHUNK_BYTES,
            Codec::Blocks => BLOCK_BYTES,
        };
        let each = batch.get_array_memory_size() / batch.num_rows().max(1);
        let step = (aim / each.max(1)).clamp(1, aim);
        for start in (0..batch.num_rows()).step_by(step) {
            let chunk = batch.slice(start, step.min(batch.num_rows() - start));
            self.append_chunk(&chunk)?;
        }
        Ok(())
    }

    fn append_chunk(&mut self, chunk: &RecordBatch) -> Result<()> {
        let end = self.bytes();
        match &self.codec {
            Codec::Rows(converter) => {
                let rows = converter.convert_columns(chunk.columns())?;
                let rows = rows.try_into_binary()?;
                write(&mut self.file, rows.value_data())?;
                let ends = rows.value_offsets().iter().skip(1);
                self.ends.extend(ends.map(|&row_end| end + row_end as u64));
            }
            Codec::Blocks => {
                let mut bytes = Vec::new();
                let mut writer = StreamWriter::try_new(&mut bytes, &self.schema)?;
                writer.write(chunk)?;
                writer.finish()?;
                drop(writer);
                write(&mut self.file, &bytes)?;
                let rows = self.rows() + chunk.num_rows() as u64;
                self.ends.push(end + bytes.len() as u64);
                self.block_rows.push(rows);
            }
        }
        Ok(())
    }

    /// Returns the rows with the numbers `rows`, in this order.
    pub(super) fn gather(&self, rows: &[u64]) -> Result<RecordBatch> {
        match &self.codec {
            Codec::Rows(converter) => self.gather_rows(converter, rows),
            Codec::Blocks => self.gather_from_blocks(rows),
        }
    }

    fn gather_rows(&self, converter: &RowConverter, rows: &[u64]) -> Result<RecordBatch> {
        let mut wanted = rows.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let pieces = self.read(&wanted)?;
        let spans = rows.iter().map(|&row| self.span(row));
        let total: u64 = spans.clone().map(|(from, to)| to - from).sum();
        if total > MAX_GATHER_BYTES {
            return exec_err!(
                "{} rows take {total} bytes, above the {MAX_GATHER_BYTES} that one batch can hold",
                rows.len()
            );
        }
        let parser = converter.parser();
        let parsed = spans.map(|(from, to)| Ok(parser.parse(pieces.bytes(from, to)?)));
        let parsed = parsed.collect::<Result<Vec<_>>>()?;
        let columns = converter.convert_rows(parsed)?;
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }

    fn gather_from_blocks(&self, rows: &[u64]) -> Result<RecordBatch> {
        let block_of = |row: u64| self.block_rows.partition_point(|&end| end <= row) as u64;
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_unstable_by_key(|&at| rows[at]);
        let mut places = vec![(0, 0); rows.len()];
        let mut taken = Vec::new();
        for same in order.chunk_by(|&a, &b| block_of(rows[a]) == block_of(rows[b])) {
            let Some(&first) = same.first() else { continue };
            let block = block_of(rows[first]);
            let before = match block {
                0 => 0,
                after => self.block_rows[after as usize - 1],
            };
            let (from, to) = self.span(block);
            let pieces = self.read(&[block])?;
            let mut reader = StreamReader::try_new(Cursor::new(pieces.bytes(from, to)?), None)?;
            let Some(batch) = reader.next().transpose()? else {
                return internal_err!("a block of spilled rows is empty");
            };
            let within = same.iter().map(|&at| (rows[at] - before) as u32);
            for (row, &at) in same.iter().enumerate() {
                places[at] = (taken.len(), row);
            }
            let within = UInt32Array::from_iter_values(within);
            taken.push(take_record_batch(&batch, &within)?);
        }
        let taken: Vec<&RecordBatch> = taken.iter().collect();
        Ok(interleave_record_batch(&taken, &places)?)
    }

    /// Returns the byte offsets in the file at which the piece with number `piece` (a row or a
    /// block) starts and ends.
    fn span(&self, piece: u64) -> (u64, u64) {
        let piece = piece as usize;
        let start = if piece == 0 { 0 } else { self.ends[piece - 1] };
        (start, self.ends[piece])
    }

    /// Reads the pieces with the numbers `ascending`, which ascend. Pieces close to each other are
    /// read in one call.
    fn read(&self, ascending: &[u64]) -> Result<SpilledRanges> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for &piece in ascending {
            let (from, to) = self.span(piece);
            match runs.last_mut() {
                Some((start, end))
                    if from - *end <= GAP_BYTES && to - *start <= CHUNK_BYTES as u64 =>
                {
                    *end = to;
                }
                _ => runs.push((from, to)),
            }
        }
        let mut pieces = SpilledRanges::default();
        for (from, to) in runs {
            let mut bytes = vec![0; (to - from) as usize];
            read_exact_at(&self.file.file, &mut bytes, from)
                .map_err(|error| SpillError::failed_to("read rows from", error))?;
            pieces.starts.push(from);
            pieces.runs.push(bytes);
        }
        Ok(pieces)
    }
}

fn write(file: &mut SpillFile, bytes: &[u8]) -> Result<()> {
    { file.append(bytes) }.map_err(|error| SpillError::failed_to("write rows to", error))
}

/// Byte ranges of the file that were read into memory, by ascending start.
#[derive(Default)]
struct SpilledRanges {
    starts: Vec<u64>,
    runs: Vec<Vec<u8>>,
}

impl SpilledRanges {
    fn bytes(&self, from: u64, to: u64) -> Result<&[u8]> {
        let after = self.starts.partition_point(|&start| start <= from);
        let found = after.checked_sub(1).and_then(|run| {
            let start = self.starts[run];
            self.runs[run].get((from - start) as usize..(to - start) as usize)
        });
        match found {
            Some(bytes) => Ok(bytes),
            None => internal_err!("spilled bytes {from}..{to} were not read"),
        }
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, bytes, offset)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes = &mut bytes[read..];
        offset += read as u64;
    }
    Ok(())
}

/// Returns true if `arrow-row` reproduces values of `data_type` exactly, with the same type.
fn survives_row_format(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(..) | DataType::RunEndEncoded(..) | DataType::Union(..) => false,
        // `arrow-row` does not support these types before version 58, and builds new offsets for
        // them in later versions.
        DataType::ListView(_) | DataType::LargeListView(_) | DataType::Map(..) => false,
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            survives_row_format(field.data_type())
        }
        DataType::Struct(fields) => fields.iter().all(|f| survives_row_format(f.data_type())),
        _ => true,
    }
}
