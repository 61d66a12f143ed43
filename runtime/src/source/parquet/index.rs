//! Reads the page index of a Parquet file, after a check that the lists in the index fit its bytes.
//!
//! Without the check, the `parquet` crate reserves memory for as many pages as an offset index
//! states.

use std::io::{self, Cursor};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader,
};
use parquet::file::reader::{ChunkReader, Length};

use super::super::input::SharedInput;
use super::thrift::{Field, Thrift};

/// Maximum size in bytes of a page index. A larger page index is not read, so no pages are pruned.
const MAX_INDEX_BYTES: u64 = 256 << 20;

/// Thrift field number of the list of pages in an offset index.
const PAGES: i64 = 1;

/// Thrift field number of the last field of a page in an offset index. The fields are offset, size
/// and first row.
const PAGE_FIELDS: i64 = 3;

/// Returns the footer with the file's page index; `None` when the file has no page index, or an
/// unsound one.
///
/// # Errors
/// The file cannot be read.
pub(super) fn with_index(
    file: &SharedInput,
    size: u64,
    footer: &Arc<ParquetMetaData>,
) -> io::Result<Option<ParquetMetaData>> {
    let Some(range) = range(size, footer) else {
        return Ok(None);
    };
    let index = IndexBytes {
        start: range.start,
        bytes: file.read_at(range.start, range.end - range.start)?,
        size,
    };
    Ok(parsed(&index, footer))
}

fn parsed(index: &IndexBytes, footer: &Arc<ParquetMetaData>) -> Option<ParquetMetaData> {
    check(index, footer)?;
    let mut reader = ParquetMetaDataReader::new_with_metadata(footer.as_ref().clone())
        .with_page_index_policy(PageIndexPolicy::Optional);
    reader.read_page_indexes(index).ok()?;
    reader.finish().ok()
}

/// The bytes of a file from the start of its first page index to the end of the last.
struct IndexBytes {
    start: u64,
    bytes: Bytes,
    /// Size of the file in bytes.
    size: u64,
}

impl Length for IndexBytes {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for IndexBytes {
    type T = Cursor<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let end = self.start + self.bytes.len() as u64;
        let length = end.saturating_sub(start) as usize;
        Ok(Cursor::new(self.get_bytes(start, length)?))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let skip = { start.checked_sub(self.start) }.and_then(|skip| usize::try_from(skip).ok());
        let range = skip.and_then(|skip| Some(skip..skip.checked_add(length)?));
        let range = range.filter(|range| range.end <= self.bytes.len());
        let outside = || ParquetError::EOF("a page index lies outside of the indexes".to_owned());
        Ok(self.bytes.slice(range.ok_or_else(outside)?))
    }
}

/// Returns the column chunks of all row groups.
fn columns(footer: &ParquetMetaData) -> impl Iterator<Item = &ColumnChunkMetaData> {
    footer.row_groups().iter().flat_map(|group| group.columns())
}

/// Returns the byte range from the start of the first page index to the end of the last; `None`
/// when the file has no index, or an index cannot be where the footer says.
fn range(size: u64, footer: &ParquetMetaData) -> Option<Range<u64>> {
    let mut whole: Option<Range<u64>> = None;
    for range in columns(footer).flat_map(ranges).flatten() {
        let range = range?;
        whole = Some(match whole {
            Some(whole) => whole.start.min(range.start)..whole.end.max(range.end),
            None => range,
        });
    }
    // The `parquet` crate reads all bytes from the start of the first index to the end of the last,
    // so these bytes are limited.
    whole.filter(|whole| {
        whole.end <= size && whole.end.saturating_sub(whole.start) <= MAX_INDEX_BYTES
    })
}

/// Checks the page indexes of all column chunks. Returns `None` when any index is not sound.
fn check(index: &IndexBytes, footer: &ParquetMetaData) -> Option<()> {
    let part = |range: Range<u64>| {
        let (start, end) = (range.start - index.start, range.end - index.start);
        index.bytes.get(start as usize..end as usize)
    };
    for column in columns(footer) {
        let [offsets, values] = ranges(column);
        if let Some(range) = offsets {
            offset_index(&mut Thrift::new(part(range?)?)).ok()?;
        }
        if let Some(range) = values {
            let mut index = Thrift::new(part(range?)?);
            index.fields(|index, _, field| index.pass(field)).ok()?;
        }
    }
    Some(())
}

/// Returns the byte ranges of the offset index and of the column index of a column chunk. A range
/// is `None` when the chunk has no such index, and `Some(None)` when the stated range is
/// impossible.
fn ranges(column: &ColumnChunkMetaData) -> [Option<Option<Range<u64>>>; 2] {
    [
        (column.offset_index_offset(), column.offset_index_length()),
        (column.column_index_offset(), column.column_index_length()),
    ]
    .map(|(start, length)| {
        let (start, length) = start.zip(length)?;
        let range = u64::try_from(start).ok().zip(u64::try_from(length).ok());
        Some(range.and_then(|(start, length)| Some(start..start.checked_add(length)?)))
    })
}

fn offset_index(index: &mut Thrift<'_>) -> std::result::Result<(), String> {
    index.fields(|index, id, field| {
        let Field::Structs(pages) = field else {
            return index.pass(field);
        };
        for _ in 0..pages {
            let mut last = 0;
            index.fields(|index, id, field| {
                last = id;
                index.pass(field)
            })?;
            // A page without these fields is refused, because such a page takes far more bytes in
            // memory than in the file.
            if id == PAGES && last != PAGE_FIELDS {
                return Err("required fields of a page are missing".to_owned());
            }
        }
        Ok(())
    })
}
