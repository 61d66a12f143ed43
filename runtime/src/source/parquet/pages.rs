//! Checks the lengths that the pages of a Parquet column chunk state, before the pages are decoded.
//!
//! Without the check, the reader of the `parquet` crate allocates memory by three stated numbers:
//! the decompressed size in a page header, the number of values in a dictionary, and the number of
//! lengths in a delta encoding.

use std::ops::Range;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::serialized_reader::SerializedPageReader;

use super::super::input::SharedInput;
use super::rows;
use super::thrift::{Field, Thrift};

/// Number of bytes that are read at first to parse a page header (`HEADER_BYTES`), and the number
/// above which no more bytes are read (`MAX_HEADER_BYTES`). A longer header is an error.
const HEADER_BYTES: u64 = 1 << 10;
const MAX_HEADER_BYTES: u64 = 16 << 20;

/// Number of bytes by which the stated size of a page may exceed the most that its compressed bytes
/// can decompress to.
const SLACK_BYTES: u64 = 4 << 10;

/// Maximum decompressed size in bytes that a page compressed by Brotli may state. A fixed size is
/// used because no useful bound of Brotli's ratio exists.
const MAX_BROTLI_BYTES: u64 = 512 << 20;

/// Maximum memory in bytes for the values of one list column in a batch: `MAX_LIST_BYTES`, plus
/// `MAX_LIST_RATIO` bytes for each stored byte. A limit in rows would not suffice, because one row
/// may have all values of a column chunk.
const MAX_LIST_BYTES: u64 = 256 << 20;
const MAX_LIST_RATIO: u64 = 64;

/// Size in memory, in bytes, of the definition level and the repetition level of one value in a
/// list.
const LEVEL_BYTES: u64 = 4;

/// Maximum number of lengths that a delta encoding may state in a page. More lengths are an error,
/// because the reader decodes all lengths of a page at once.
const MAX_LENGTHS: u64 = 64 << 20;

/// A data page of a column chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DataPage {
    offset: u64,
    /// Size of the page's header and data together, in bytes.
    bytes: u64,
    values: u64,
}

/// The fields of a page header that are checked.
#[derive(Debug)]
struct PageHeader {
    kind: i64,
    compressed: i64,
    uncompressed: i64,
    values: i64,
    encoding: i64,
}

/// Values of Parquet's `PageType`.
const DATA: i64 = 0;
const INDEX: i64 = 1;
const DICTIONARY: i64 = 2;
const DATA_V2: i64 = 3;

/// Thrift field numbers, in a page header, of the nested header of a data page, of a dictionary
/// page and of a data page of version 2.
const DATA_HEADER: i64 = 5;
const DICTIONARY_HEADER: i64 = 7;
const DATA_V2_HEADER: i64 = 8;

/// The data pages of a column chunk, whose lengths were checked.
#[derive(Debug)]
pub(super) struct Pages {
    pages: Vec<DataPage>,
    /// Maximum number of rows in a batch that includes this column.
    pub(super) batch_rows: usize,
}

impl Pages {
    /// Reads and checks the page headers of a column chunk. `size` is the size of the file in
    /// bytes, and `rows` is the number of rows in the row group.
    pub(super) fn check(
        file: &SharedInput,
        size: u64,
        column: &ColumnChunkMetaData,
        rows: u64,
    ) -> Result<Self, String> {
        let range = byte_range(column, size).ok_or_else(|| {
            format!(
                "its {} bytes at {} do not lie within the file",
                column.compressed_size(),
                offset(column)
            )
        })?;
        let stored = range.end - range.start;
        let most = u64::try_from(column.num_values()).unwrap_or(0);
        let mut pages = Vec::new();
        let (mut at, mut values, mut has_deltas) = (range.start, 0u64, false);
        while at < range.end {
            let failed = |cause: String| format!("page at byte {at}: {cause}");
            let (header, length) = header(file, at, range.end).map_err(failed)?;
            let data = at + length;
            let compressed = stated(header.compressed, range.end - data).map_err(failed)?;
            check_header(&header, compressed, column).map_err(failed)?;
            let end = data + compressed;
            if header.kind == DATA || header.kind == DATA_V2 {
                pages.push(DataPage {
                    offset: at,
                    bytes: end - at,
                    values: header.values as u64,
                });
                values = values.saturating_add(header.values as u64);
                if values > most {
                    return Err(failed(format!(
                        "its pages have {values} values or more, but the footer counts {most}"
                    )));
                }
                has_deltas |= has_delta_lengths(header.encoding);
            }
            at = end;
        }
        let is_list = column.column_descr().max_rep_level() > 0;
        if !is_list && values != rows {
            return Err(format!("its pages have {values} values for {rows} rows"));
        }
        let mut batch_rows = usize::MAX;
        let room = MAX_LIST_BYTES.saturating_add(stored.saturating_mul(MAX_LIST_RATIO));
        let each = width(column) + LEVEL_BYTES;
        if is_list && values.saturating_mul(each) > room {
            let largest = rows::largest(file, column, rows)?;
            let in_room = room / largest.saturating_mul(each).max(1);
            if in_room == 0 {
                return Err(format!(
                    "a row has {largest} values of at least {each} bytes each, together above {room} bytes, the limit for a row whose pages take {stored} bytes in the file"
                ));
            }
            batch_rows = usize::try_from(in_room).unwrap_or(usize::MAX);
        }
        if has_deltas {
            check_deltas(file, column, rows)?;
        }
        Ok(Self { pages, batch_rows })
    }

    /// True when the offset index `index` lists exactly these pages, with the right offsets, sizes
    /// and first rows. For list columns, first rows are not compared.
    pub(super) fn fit(&self, index: &[PageLocation], column: &ColumnChunkMetaData) -> bool {
        let is_list = column.column_descr().max_rep_level() > 0;
        let mut row = 0u64;
        index.len() == self.pages.len()
            && self.pages.iter().zip(index).all(|(page, location)| {
                let fits = u64::try_from(location.offset) == Ok(page.offset)
                    && u64::try_from(location.compressed_page_size) == Ok(page.bytes)
                    && (is_list || u64::try_from(location.first_row_index) == Ok(row));
                row += page.values;
                fits
            })
    }
}

/// Returns the offset of a column chunk, as the footer states it.
fn offset(column: &ColumnChunkMetaData) -> i64 {
    { column.dictionary_page_offset() }.unwrap_or_else(|| column.data_page_offset())
}

/// Returns the byte range of a column chunk; `None` if it does not lie within the file of `size`
/// bytes.
pub(super) fn byte_range(column: &ColumnChunkMetaData, size: u64) -> Option<Range<u64>> {
    let start = u64::try_from(offset(column)).ok()?;
    let bytes = u64::try_from(column.compressed_size()).ok()?;
    let range = start..start.checked_add(bytes)?;
    (range.end <= size).then_some(range)
}

/// Checks that `length`, which a file states, is neither negative nor above `most`, and returns
/// `length`.
fn stated(length: i64, most: u64) -> Result<u64, String> {
    u64::try_from(length)
        .ok()
        .filter(|&length| length <= most)
        .ok_or_else(|| format!("it states {length} bytes, where {most} are left"))
}

/// Reads the page header at the byte offset `at`, which ends before `end`. Returns the header and
/// its length in bytes.
fn header(file: &SharedInput, at: u64, end: u64) -> Result<(PageHeader, u64), String> {
    let mut window = HEADER_BYTES;
    loop {
        let length = window.min(end - at);
        let bytes = file.read_at(at, length);
        let bytes = bytes.map_err(|error| format!("it cannot be read: {error}"))?;
        let mut thrift = Thrift::new(&bytes);
        match parse(&mut thrift) {
            Ok(header) => return Ok((header, length - thrift.left() as u64)),
            Err(cause) if length == end - at || window >= MAX_HEADER_BYTES => {
                return Err(format!("its header cannot be read: {cause}"));
            }
            // The header may be longer than the bytes that were read, for example because of
            // statistics. More bytes are read.
            Err(_) => window *= 8,
        }
    }
}

fn parse(thrift: &mut Thrift<'_>) -> Result<PageHeader, String> {
    let (mut kind, mut uncompressed, mut compressed) = (None, None, None);
    // For each nested header, its field number, its number of values and its encoding.
    let mut parts = Vec::new();
    thrift.fields(|thrift, id, field| {
        match (id, field) {
            (1, Field::Integer(number)) => kind = Some(number),
            (2, Field::Integer(bytes)) => uncompressed = Some(bytes),
            (3, Field::Integer(bytes)) => compressed = Some(bytes),
            (DATA_HEADER | DICTIONARY_HEADER | DATA_V2_HEADER, Field::Struct) => {
                let (mut values, mut encoding) = (None, None);
                let encoding_id = if id == DATA_V2_HEADER { 4 } else { 2 };
                thrift.fields(|thrift, of, field| {
                    match field {
                        Field::Integer(count) if of == 1 => values = Some(count),
                        Field::Integer(number) if of == encoding_id => encoding = Some(number),
                        _ => {}
                    }
                    thrift.pass(field)
                })?;
                parts.push((id, values, encoding));
                return Ok(());
            }
            _ => {}
        }
        thrift.pass(field)
    })?;
    let missing = || "it lacks its type or its lengths".to_owned();
    let kind = kind.ok_or_else(missing)?;
    let part = match kind {
        DATA => Some(DATA_HEADER),
        DICTIONARY => Some(DICTIONARY_HEADER),
        DATA_V2 => Some(DATA_V2_HEADER),
        // Index pages hold no values and are skipped.
        INDEX => None,
        other => return Err(format!("{other} is not a page type")),
    };
    let (values, encoding) = match part {
        None => (0, 0),
        Some(part) => {
            // If a nested header occurs twice, the last occurrence counts, as in the `parquet`
            // crate.
            let part = parts.into_iter().rfind(|(id, ..)| *id == part);
            part.and_then(|(_, values, encoding)| values.zip(encoding))
                .ok_or("it lacks its values or their encoding")?
        }
    };
    Ok(PageHeader {
        kind,
        compressed: compressed.ok_or_else(missing)?,
        uncompressed: uncompressed.ok_or_else(missing)?,
        values,
        encoding,
    })
}

fn check_header(
    header: &PageHeader,
    compressed: u64,
    column: &ColumnChunkMetaData,
) -> Result<(), String> {
    // Maximum number of bytes that one compressed byte decompresses to.
    let ratio = match column.compression() {
        Compression::UNCOMPRESSED => 1,
        Compression::SNAPPY => 64,
        Compression::LZ4 | Compression::LZ4_RAW => 255,
        Compression::GZIP(_) => 1032,
        _ => 32 << 10,
    };
    let most = match column.compression() {
        Compression::BROTLI(_) => MAX_BROTLI_BYTES,
        _ => compressed.saturating_mul(ratio).saturating_add(SLACK_BYTES),
    };
    let uncompressed = stated(header.uncompressed, most).map_err(|_| {
        format!(
            "it states {} bytes in {compressed} compressed bytes",
            header.uncompressed
        )
    })?;
    let values =
        u64::try_from(header.values).map_err(|_| format!("it states {} values", header.values))?;
    if header.kind == DICTIONARY
        && values.saturating_mul(width(column)) > uncompressed.max(compressed)
    {
        return Err(format!(
            "its dictionary states {values} values in {uncompressed} bytes"
        ));
    }
    Ok(())
}

/// Returns the minimum size in bytes of one value of `column` in plain encoding.
fn width(column: &ColumnChunkMetaData) -> u64 {
    match column.column_type() {
        Type::BOOLEAN => 0,
        Type::INT32 | Type::FLOAT | Type::BYTE_ARRAY => 4,
        Type::INT64 | Type::DOUBLE => 8,
        Type::INT96 => 12,
        Type::FIXED_LEN_BYTE_ARRAY => {
            u64::try_from(column.column_descr().type_length()).unwrap_or(0)
        }
    }
}

/// True for the numbers of the encodings `DELTA_LENGTH_BYTE_ARRAY` and `DELTA_BYTE_ARRAY`, whose
/// data states a number of lengths.
const fn has_delta_lengths(encoding: i64) -> bool {
    matches!(encoding, 6 | 7)
}

/// Decompresses the pages of a column chunk, to check the numbers of lengths that their delta
/// encodings state.
fn check_deltas(file: &SharedInput, column: &ColumnChunkMetaData, rows: u64) -> Result<(), String> {
    let failed = |error: parquet::errors::ParquetError| error.to_string();
    let mut reader = SerializedPageReader::new(Arc::new(file.clone()), column, rows as usize, None)
        .map_err(failed)?;
    while let Some(page) = reader.get_next_page().map_err(failed)? {
        let encoding = page.encoding();
        if !matches!(
            encoding,
            Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY
        ) {
            continue;
        }
        let values = values(&page, column)?;
        if values.is_empty() {
            continue;
        }
        let most = u64::from(page.num_values());
        let mut thrift = Thrift::new(values);
        lengths(&mut thrift, most)?;
        if encoding == Encoding::DELTA_BYTE_ARRAY {
            lengths(&mut thrift, most)?;
        }
    }
    Ok(())
}

/// Returns the encoded values of a data page, which follow the levels of the page.
fn values<'a>(page: &'a Page, column: &ColumnChunkMetaData) -> Result<&'a [u8], String> {
    let bytes: &[u8] = page.buffer();
    let cut = || "its levels are longer than the page".to_owned();
    match page {
        Page::DataPageV2 {
            def_levels_byte_len,
            rep_levels_byte_len,
            ..
        } => {
            let levels = *def_levels_byte_len as usize + *rep_levels_byte_len as usize;
            bytes.get(levels..).ok_or_else(cut)
        }
        Page::DataPage {
            num_values,
            def_level_encoding,
            rep_level_encoding,
            ..
        } => {
            let descriptor = column.column_descr();
            let levels = [
                (descriptor.max_rep_level(), rep_level_encoding),
                (descriptor.max_def_level(), def_level_encoding),
            ];
            let mut rest = bytes;
            for (most, encoding) in levels {
                if most <= 0 {
                    continue;
                }
                let length = match rest.split_first_chunk() {
                    Some((length, _)) if *encoding == Encoding::RLE => {
                        u32::from_le_bytes(*length) as usize + 4
                    }
                    _ => {
                        let bits = u64::from(16 - most.leading_zeros());
                        (u64::from(*num_values) * bits).div_ceil(8) as usize
                    }
                };
                rest = rest.get(length..).ok_or_else(cut)?;
            }
            Ok(rest)
        }
        Page::DictionaryPage { .. } => Ok(&[]),
    }
}

/// Reads lengths in the encoding `DELTA_BINARY_PACKED`, and checks that at most `most` lengths are
/// stated.
fn lengths(bytes: &mut Thrift<'_>, most: u64) -> Result<(), String> {
    let (block, miniblocks, total) = (bytes.varint()?, bytes.varint()?, bytes.varint()?);
    bytes.signed()?;
    if total > most {
        return Err(format!("a page of {most} values states {total} lengths"));
    }
    if total > MAX_LENGTHS {
        return Err(format!(
            "a page states {total} lengths, more than {MAX_LENGTHS}: write smaller pages"
        ));
    }
    let each = block.checked_div(miniblocks).filter(|&each| each > 0);
    let each = each.ok_or_else(|| {
        format!("a delta encoding states blocks of {block} lengths in {miniblocks} miniblocks")
    })?;
    let mut left = total.saturating_sub(1);
    while left > 0 {
        bytes.signed()?;
        let widths = bytes.take(miniblocks)?;
        for &width in widths {
            if left == 0 {
                break;
            }
            let bits = each
                .checked_mul(u64::from(width))
                .ok_or("a delta encoding states a miniblock that is too long")?;
            bytes.take(bits.div_ceil(8))?;
            left = left.saturating_sub(each);
        }
    }
    Ok(())
}
