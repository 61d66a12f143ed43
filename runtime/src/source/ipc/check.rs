//! Checks the lengths that an Arrow IPC message states against the bytes that the file has.
//!
//! Arrow's decoder trusts stated lengths: it allocates the size that a compressed buffer states,
//! and the engine plans as many rows as a record batch states. The lengths are therefore checked
//! first, in the order in which the decoder takes nodes and buffers
//! (`RecordBatchDecoder::create_array`).

use std::io::{self, Read};
use std::ops::Range;

use arrow::datatypes::{DataType, Field, Fields, Schema, UnionFields, UnionMode};
use arrow::ipc::{
    CompressionType, DictionaryBatch, Message, MetadataVersion, RecordBatch, root_as_message,
};

/// Size in bytes of the prefix of a compressed buffer, which states its decompressed length.
const PREFIX_BYTES: u64 = 8;

/// Value of the prefix of a buffer that is stored uncompressed, although its message is compressed.
const NOT_COMPRESSED: i64 = -1;

/// Upper bounds of the number of bytes that one compressed byte decompresses to. In LZ4, one byte
/// of a length can repeat 255 bytes. In Zstandard, a block of four bytes can repeat 128 KiB.
const MAX_LZ4_RATIO: u64 = 255;
const MAX_ZSTD_RATIO: u64 = 32 << 10;

/// Ratio of stated to stored bytes above which a buffer is first decompressed without keeping the
/// result, to check that the stated size is true.
const DOUBTFUL_RATIO: u64 = 64;

/// Maximum total size in bytes, once decompressed, of the compressed buffers that are read from one
/// record batch or dictionary. A larger total is an error, because all projected columns of a
/// record batch are in memory at once.
pub(super) const MAX_HELD_BYTES: u64 = 4 << 30;

/// The layout of a message, whose lengths were all checked against its block.
#[derive(Debug)]
pub(super) struct Checked {
    /// Number of rows of the record batch.
    pub(super) rows: u64,
    /// For each column, the range of its buffers in `buffers`.
    pub(super) columns: Vec<Range<usize>>,
    /// All buffers of the message.
    pub(super) buffers: Vec<BodyBuffer>,
}

/// A buffer in the body of a message.
#[derive(Debug, Clone)]
pub(super) struct BodyBuffer {
    /// Byte range of the buffer in the body of the message.
    pub(super) bytes: Range<u64>,
    /// Minimum number of bytes that the buffer must hold once decompressed.
    needed: u64,
}

/// Parses the message in `metadata`, the metadata of a block.
pub(super) fn parse(metadata: &[u8]) -> Result<Message<'_>, String> {
    // Since format version 0.15, a marker of four bytes precedes the length of the message.
    let message = match metadata.get(..4) {
        Some([0xff, 0xff, 0xff, 0xff]) => metadata.get(8..),
        _ => metadata.get(4..),
    };
    let message = message.ok_or("its message is too short")?;
    root_as_message(message).map_err(|e| format!("its message cannot be read: {e}"))
}

/// Checks a message that must hold a record batch with the columns of `schema`. `body` is the size
/// of the message's body in bytes.
pub(super) fn record_batch<'a>(
    message: &Message<'a>,
    schema: &Schema,
    body: u64,
) -> Result<(RecordBatch<'a>, Checked), String> {
    let batch = message
        .header_as_record_batch()
        .ok_or("its message holds no record batch")?;
    let checked = check(message, &batch, schema.fields(), body)?;
    Ok((batch, checked))
}

/// Checks a message that must hold a dictionary of a column of `schema`. `body` is the size of the
/// message's body in bytes.
pub(super) fn dictionary<'a>(
    message: &Message<'a>,
    schema: &Schema,
    body: u64,
) -> Result<(DictionaryBatch<'a>, Checked), String> {
    let dictionary = message
        .header_as_dictionary_batch()
        .ok_or("its message holds no dictionary")?;
    let batch = dictionary.data().ok_or("its dictionary has no values")?;
    let id = dictionary.id();
    #[allow(deprecated, reason = "no other call tells which columns have a dictionary")]
    let fields = schema.fields_with_dict_id(id);
    let Some(DataType::Dictionary(_, values)) = fields.first().map(|field| field.data_type())
    else {
        return Err(format!("no column has the dictionary {id}"));
    };
    let values = Fields::from(vec![Field::new("", values.as_ref().clone(), true)]);
    let checked = check(message, &batch, &values, body)?;
    Ok((dictionary, checked))
}

fn check(
    message: &Message<'_>,
    batch: &RecordBatch<'_>,
    fields: &Fields,
    body: u64,
) -> Result<Checked, String> {
    let rows = length(batch.length(), "rows")?;
    let nodes = batch.nodes().ok_or("its message has no nodes")?;
    let buffers = batch.buffers().ok_or("its message has no buffers")?;
    let most = match batch.compression().map(|compression| compression.codec()) {
        None => None,
        Some(CompressionType::LZ4_FRAME) => Some(MAX_LZ4_RATIO),
        Some(CompressionType::ZSTD) => Some(MAX_ZSTD_RATIO),
        Some(other) => return Err(format!("its compression {other:?} is not supported")),
    };
    let variadic = batch.variadicBufferCounts();
    let mut walk = BufferWalk {
        version: message.version(),
        body,
        ratio: most,
        nodes: nodes.iter(),
        given: buffers.iter(),
        variadic: variadic.into_iter().flatten(),
        buffers: Vec::with_capacity(buffers.len()),
    };
    let mut columns = Vec::with_capacity(fields.len());
    for field in fields {
        let first = walk.buffers.len();
        let column_rows = walk
            .field(field.data_type())
            .map_err(|cause| format!("column '{}': {cause}", field.name()))?;
        if column_rows != rows {
            return Err(format!(
                "column '{}' has {column_rows} of the {rows} rows that its message states",
                field.name()
            ));
        }
        columns.push(first..walk.buffers.len());
    }
    if walk.variadic.next().is_some() {
        return Err("its message has more buffer counts than columns of views".to_owned());
    }
    Ok(Checked {
        rows,
        columns,
        buffers: walk.buffers,
    })
}

fn length(stated: i64, of: &str) -> Result<u64, String> {
    u64::try_from(stated).map_err(|_| format!("it states {stated} {of}"))
}

/// A walk over the nodes and buffers of a message, field by field.
struct BufferWalk<N, B, V> {
    version: MetadataVersion,
    /// Size of the message's body in bytes.
    body: u64,
    /// Maximum number of bytes that one compressed byte decompresses to; `None` when buffers are
    /// not compressed.
    ratio: Option<u64>,
    nodes: N,
    given: B,
    variadic: V,
    buffers: Vec<BodyBuffer>,
}

impl<'a, N, B, V> BufferWalk<N, B, V>
where
    N: Iterator<Item = &'a arrow::ipc::FieldNode>,
    B: Iterator<Item = &'a arrow::ipc::Buffer>,
    V: Iterator<Item = i64>,
{
    /// Checks the next field and its children, and returns the number of values of that field.
    fn field(&mut self, data_type: &DataType) -> Result<u64, String> {
        let node = self.nodes.next().ok_or("its message has too few nodes")?;
        let rows = length(node.length(), "values")?;
        let nulls = length(node.null_count(), "nulls")?;
        if nulls > rows {
            return Err(format!("it states {nulls} nulls in {rows} values"));
        }
        let bits = rows.div_ceil(8);
        let validity = if nulls > 0 { bits } else { 0 };
        match data_type {
            DataType::Null => {}
            DataType::Boolean => {
                self.buffer(Some(validity))?;
                self.buffer(Some(bits))?;
            }
            DataType::Utf8 | DataType::Binary => self.variable(validity, offsets(rows, 4))?,
            DataType::LargeUtf8 | DataType::LargeBinary => {
                self.variable(validity, offsets(rows, 8))?;
            }
            DataType::Utf8View | DataType::BinaryView => self.view(validity, rows)?,
            DataType::FixedSizeBinary(width) => {
                let width = length(i64::from(*width), "bytes a value")?;
                self.buffer(Some(validity))?;
                self.buffer(rows.checked_mul(width))?;
            }
            DataType::List(item) | DataType::Map(item, _) => {
                self.buffer(Some(validity))?;
                self.buffer(offsets(rows, 4))?;
                self.field(item.data_type())?;
            }
            DataType::LargeList(item) => {
                self.buffer(Some(validity))?;
                self.buffer(offsets(rows, 8))?;
                self.field(item.data_type())?;
            }
            DataType::ListView(item) | DataType::LargeListView(item) => {
                let width = if matches!(data_type, DataType::ListView(_)) {
                    4
                } else {
                    8
                };
                self.buffer(Some(validity))?;
                self.buffer(rows.checked_mul(width))?;
                self.buffer(rows.checked_mul(width))?;
                self.field(item.data_type())?;
            }
            DataType::FixedSizeList(item, width) => {
                let width = length(i64::from(*width), "items a value")?;
                self.buffer(Some(validity))?;
                let items = self.field(item.data_type())?;
                if rows.checked_mul(width).is_none_or(|needed| needed > items) {
                    return Err(format!("it has {items} items for {rows} lists of {width}"));
                }
            }
            DataType::Struct(fields) => {
                self.buffer(Some(validity))?;
                for field in fields {
                    self.child(field.data_type(), rows)?;
                }
            }
            DataType::RunEndEncoded(ends, values) => {
                let runs = self.field(ends.data_type())?;
                self.child(values.data_type(), runs)?;
            }
            DataType::Dictionary(keys, _) => {
                let width = keys.primitive_width().unwrap_or(1) as u64;
                self.buffer(Some(validity))?;
                self.buffer(rows.checked_mul(width))?;
            }
            DataType::Union(fields, mode) => self.union(fields, *mode, rows)?,
            fixed => {
                let width = fixed
                    .primitive_width()
                    .ok_or_else(|| format!("its type {fixed} is not supported"))?;
                self.buffer(Some(validity))?;
                self.buffer(rows.checked_mul(width as u64))?;
            }
        }
        Ok(rows)
    }

    /// Checks a child field, which must have `rows` values.
    fn child(&mut self, data_type: &DataType, rows: u64) -> Result<(), String> {
        let found = self.field(data_type)?;
        if found == rows {
            Ok(())
        } else {
            Err(format!("a child field has {found} values, expected {rows}"))
        }
    }

    fn union(&mut self, fields: &UnionFields, mode: UnionMode, rows: u64) -> Result<(), String> {
        if self.version < MetadataVersion::V5 {
            self.buffer(Some(0))?;
        }
        self.buffer(Some(rows))?;
        if mode == UnionMode::Dense {
            self.buffer(rows.checked_mul(4))?;
        }
        for (_, field) in fields.iter() {
            match mode {
                UnionMode::Sparse => self.child(field.data_type(), rows)?,
                UnionMode::Dense => drop(self.field(field.data_type())?),
            }
        }
        Ok(())
    }

    fn view(&mut self, validity: u64, rows: u64) -> Result<(), String> {
        let count = self.variadic.next();
        let count = length(count.ok_or("its message has no buffer count")?, "buffers")?;
        self.buffer(Some(validity))?;
        self.buffer(rows.checked_mul(16))?;
        // Each iteration takes a buffer of the message, so a count that is too large soon fails.
        (0..count).try_for_each(|_| self.buffer(Some(0)))
    }

    fn variable(&mut self, validity: u64, offsets: Option<u64>) -> Result<(), String> {
        self.buffer(Some(validity))?;
        self.buffer(offsets)?;
        self.buffer(Some(0))
    }

    /// Takes the next buffer, which must hold at least `needed` bytes. `None` means that the number
    /// of needed bytes overflows `u64`, which always fails.
    fn buffer(&mut self, needed: Option<u64>) -> Result<(), String> {
        let buffer = self.given.next().ok_or("its message has too few buffers")?;
        let start = length(buffer.offset(), "as the byte offset of a buffer")?;
        let bytes = length(buffer.length(), "bytes")?;
        let end = start.checked_add(bytes).filter(|&end| end <= self.body);
        let end = end.ok_or_else(|| {
            format!(
                "a buffer of {bytes} bytes at byte {start} does not lie within the body of {} bytes",
                self.body
            )
        })?;
        let most = bytes.saturating_mul(self.ratio.unwrap_or(1));
        let needed = needed
            .filter(|&needed| needed <= most)
            .ok_or_else(|| format!("a buffer of {bytes} bytes is too short for its values"))?;
        self.buffers.push(BodyBuffer {
            bytes: start..end,
            needed,
        });
        Ok(())
    }
}

/// Returns the size in bytes of the offsets of `rows` values: 0 without values, because the offsets
/// may then be missing; `None` on overflow.
fn offsets(rows: u64, width: u64) -> Option<u64> {
    if rows == 0 {
        return Some(0);
    }
    rows.checked_add(1)?.checked_mul(width)
}

/// Checks that a compressed buffer holds as many bytes as it states, and as many as its values
/// need. `bytes` begins with the prefix of the buffer. Adds the size that the buffer states to
/// `held_before`, the total of the previous buffers, and checks that the sum is at most
/// [`MAX_HELD_BYTES`].
pub(super) fn compressed(
    codec: CompressionType,
    bytes: &[u8],
    needed: &BodyBuffer,
    held_before: &mut u64,
) -> Result<(), String> {
    let needed = needed.needed;
    if bytes.is_empty() {
        return Ok(());
    }
    let Some((prefix, stored)) = bytes.split_first_chunk::<{ PREFIX_BYTES as usize }>() else {
        return Err("a compressed buffer is too short for its length".to_owned());
    };
    let stated = i64::from_le_bytes(*prefix);
    let held = stored.len() as u64;
    let stated = if stated == NOT_COMPRESSED {
        held
    } else {
        length(stated, "bytes in a compressed buffer")?
    };
    if stated < needed {
        return Err(format!(
            "a compressed buffer of {stated} bytes is too short for its values, which need {needed} bytes"
        ));
    }
    *held_before = held_before.saturating_add(stated);
    if *held_before > MAX_HELD_BYTES {
        return Err(format!(
            "its compressed buffers hold at least {held_before} bytes, above the limit of {MAX_HELD_BYTES}: write smaller record batches"
        ));
    }
    if stated <= held.saturating_mul(DOUBTFUL_RATIO) {
        return Ok(());
    }
    let real = decompressed_bytes(codec, stored, stated);
    if real == Some(stated) {
        Ok(())
    } else {
        Err(format!(
            "a compressed buffer states {stated} bytes, but holds a different number of bytes"
        ))
    }
}

/// Returns the number of bytes that `stored` decompresses to, or `most + 1` if it exceeds `most`;
/// `None` when `stored` is damaged.
fn decompressed_bytes(codec: CompressionType, stored: &[u8], most: u64) -> Option<u64> {
    let limit = most.saturating_add(1);
    let counted = match codec {
        CompressionType::LZ4_FRAME => {
            let mut decoder = lz4_flex::frame::FrameDecoder::new(stored).take(limit);
            io::copy(&mut decoder, &mut io::sink())
        }
        _ => {
            let mut decoder = zstd::stream::read::Decoder::new(stored).ok()?.take(limit);
            io::copy(&mut decoder, &mut io::sink())
        }
    };
    counted.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a buffer of zeros compressed by Zstandard, whose prefix states `stated` bytes.
    fn zeros(bytes: usize, stated: u64) -> Vec<u8> {
        let stored = zstd::bulk::compress(&vec![0; bytes], 1).unwrap();
        [stated.to_le_bytes().as_slice(), &stored].concat()
    }

    #[test]
    fn a_message_holds_bounded_bytes_however_small_it_is() {
        let needed = BodyBuffer {
            bytes: 0..0,
            needed: 0,
        };
        let check =
            |bytes: &[u8], held: &mut u64| compressed(CompressionType::ZSTD, bytes, &needed, held);
        let honest = zeros(1 << 20, 1 << 20);
        let mut held = 0;
        check(&honest, &mut held).unwrap();
        assert_eq!(held, 1 << 20);
        // A buffer that just reaches the limit is accepted; with the next buffer, the total exceeds
        // the limit.
        held = MAX_HELD_BYTES - (1 << 20);
        check(&honest, &mut held).unwrap();
        let error = check(&honest, &mut held).unwrap_err();
        assert!(error.contains("write smaller record batches"), "{error}");
        // The stated size alone is above the limit, so the buffer is refused without decompression.
        let large = zeros(1 << 20, MAX_HELD_BYTES + 1);
        let error = check(&large, &mut 0).unwrap_err();
        assert!(error.contains("write smaller record batches"), "{error}");
    }
}
