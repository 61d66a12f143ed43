//! Reads the parts of an Arrow IPC file: its footer, dictionaries and record batches.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{RecordBatchDecoder, read_dictionary, read_footer_length};
use arrow::ipc::{self, Block, MetadataVersion, root_as_footer};
use bytes::Bytes;

use super::super::content::{ContentHash, ContentHasher, extend_tail, read_tail};
use super::super::error::SourceError;
use super::super::input::{Input, InputFile};
use super::check::{self, Checked};

pub(super) const FORMAT: &str = "ARROW";

const MAGIC: &[u8; 6] = b"ARROW1";

/// Size in bytes of what follows the footer: the footer's length and the magic.
const TAIL_BYTES: u64 = 10;

/// Maximum gap in bytes between two wanted buffers that are read together, including the gap.
const GAP_BYTES: u64 = 64 << 10;

/// Maximum size in bytes of a record batch that is read from an object store as a whole, in one
/// request, whatever columns are wanted.
const WHOLE_BYTES: u64 = 256 << 10;

/// Maximum size of a footer in bytes; a larger footer is an error.
const MAX_FOOTER_BYTES: u64 = 256 << 20;

/// The content hash, schema and version of a file, and the blocks of its record batches and
/// dictionaries.
#[derive(Debug)]
pub(super) struct FileLayout {
    pub(super) content: ContentHash,
    pub(super) schema: SchemaRef,
    pub(super) version: MetadataVersion,
    pub(super) blocks: Vec<Block>,
    pub(super) dictionaries: Vec<Block>,
}

/// Reads the footer of a file, and returns its layout with the row count of each record batch.
pub(super) fn inspect(file: &InputFile) -> Result<(FileLayout, Vec<u64>), SourceError> {
    let path = &file.name();
    let damaged = |cause: String| SourceError::damaged(path, FORMAT, cause);
    let unreadable = |error| SourceError::unreadable(path, error);
    let (mut file, size) = file.open()?;
    if size < TAIL_BYTES + MAGIC.len() as u64 {
        return Err(damaged("it is too short".to_owned()));
    }
    // Of a small file that is an object, this reads all.
    let mut tail = read_tail(&mut file, size, 0).map_err(unreadable)?;
    let magic = file.read_at(0, MAGIC.len() as u64).map_err(unreadable)?;
    check_magic(&magic).map_err(|cause| damaged(cause.to_owned()))?;
    let end = tail.last_chunk().copied().unwrap_or_default();
    let length = read_footer_length(end).map_err(|_| {
        damaged("it does not end as an Arrow IPC file; it may be cut off".to_owned())
    })? as u64;
    if length > MAX_FOOTER_BYTES.min(size - TAIL_BYTES) {
        return Err(damaged(format!(
            "its footer states a length of {length} bytes, above the size of the file or the limit of {MAX_FOOTER_BYTES} bytes"
        )));
    }
    let needed = length + TAIL_BYTES;
    if needed > tail.len() as u64 {
        tail = extend_tail(&mut file, size, needed, tail).map_err(unreadable)?;
    }
    let mut content = ContentHasher::new(FORMAT, "");
    content.update(&tail);
    let footer = tail.len() - needed as usize..tail.len() - TAIL_BYTES as usize;
    let footer = root_as_footer(&tail[footer])
        .map_err(|e| damaged(format!("its footer cannot be read: {e}")))?;
    let schema = footer
        .schema()
        .ok_or_else(|| damaged("its footer has no schema".to_owned()))?;
    if !schema.endianness().equals_to_target_endianness() {
        return Err(damaged(
            "it was written on a machine of another byte order".to_owned(),
        ));
    }
    let mut layout = FileLayout {
        content: content.finish(),
        schema: Arc::new(fb_to_schema(schema)),
        version: footer.version(),
        blocks: footer.recordBatches().iter().flatten().copied().collect(),
        dictionaries: footer.dictionaries().iter().flatten().copied().collect(),
    };
    for block in layout.blocks.iter().chain(&layout.dictionaries) {
        let within = extent(block).filter(|(start, length)| start + length <= size - TAIL_BYTES);
        let at = block.offset();
        within
            .ok_or_else(|| damaged(format!("a block at byte {at} does not lie within the file")))?;
    }
    let blocks = layout.dictionaries.iter().chain(&layout.blocks);
    let headers: Vec<Range<u64>> = blocks.map(metadata_range).collect();
    file.fetch(&headers).map_err(unreadable)?;
    for block in &layout.dictionaries {
        let metadata = read_metadata(&mut file, block).map_err(unreadable)?;
        check::parse(&metadata)
            .and_then(|message| {
                check::dictionary(&message, &layout.schema, body_bytes(block)).map(drop)
            })
            .map_err(|e| damaged(format!("a dictionary at byte {}: {e}", block.offset())))?;
    }
    let mut rows = Vec::with_capacity(layout.blocks.len());
    for (index, block) in layout.blocks.iter().enumerate() {
        let metadata = read_metadata(&mut file, block).map_err(unreadable)?;
        let checked = check::parse(&metadata)
            .and_then(|message| {
                Ok(check::record_batch(&message, &layout.schema, body_bytes(block))?.1)
            })
            .map_err(|e| damaged(format!("record batch {index}: {e}")))?;
        content.update(&metadata);
        rows.push(checked.rows);
    }
    layout.content = content.finish();
    Ok((layout, rows))
}

/// Checks that a file begins as an Arrow IPC file.
fn check_magic(magic: &[u8]) -> Result<(), &'static str> {
    match magic {
        magic if magic == MAGIC => Ok(()),
        [0xff, 0xff, 0xff, 0xff, ..] => {
            Err("it holds an Arrow stream; write the file format (also called Feather 2) instead")
        }
        [b'F', b'E', b'A', b'1', ..] => Err("it is a Feather 1 file; write Feather 2 instead"),
        _ => Err("it does not begin as an Arrow IPC file"),
    }
}

/// Returns the offset and the length of a block in bytes; `None` when a number is negative, or the
/// end of the block overflows.
fn extent(block: &Block) -> Option<(u64, u64)> {
    let start = u64::try_from(block.offset()).ok()?;
    let metadata = u64::try_from(block.metaDataLength()).ok()?;
    let body = u64::try_from(block.bodyLength()).ok()?;
    let length = metadata.checked_add(body)?;
    start.checked_add(length)?;
    Some((start, length))
}

/// Returns the size of a block in bytes; 0 when the block's offset or length is invalid.
pub(super) fn block_bytes(block: &Block) -> u64 {
    extent(block).map_or(0, |(_, length)| length)
}

fn body_bytes(block: &Block) -> u64 {
    u64::try_from(block.bodyLength()).unwrap_or(0)
}

/// Returns the byte range of a block's metadata. The caller has checked that it lies within the
/// file.
fn metadata_range(block: &Block) -> Range<u64> {
    let start = block.offset() as u64;
    start..start + block.metaDataLength() as u64
}

fn read_metadata(file: &mut Input, block: &Block) -> std::io::Result<Bytes> {
    let range = metadata_range(block);
    file.read_at(range.start, range.end - range.start)
}

/// Returns the body of a block with only the buffers of `columns` read; other bytes, except small
/// gaps between these buffers, are zero and take no memory.
fn read_body(
    file: &mut Input,
    block: &Block,
    checked: &Checked,
    columns: &[usize],
) -> Result<Buffer, ArrowError> {
    // The ranges lie within the file: the layout was checked against the file's size when the
    // source was opened, and opening the file again checks that its size is unchanged.
    let body = (block.offset() as u64).saturating_add(block.metaDataLength() as u64);
    // The operating system allocates a page of zeroed memory only when the page is written.
    let mut bytes = MutableBuffer::from_len_zeroed(body_bytes(block) as usize);
    let wanted = columns
        .iter()
        .flat_map(|&column| checked.columns[column].clone());
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for buffer in wanted {
        let buffer = &checked.buffers[buffer].bytes;
        match ranges.last_mut() {
            Some(last) if (last.end..=last.end + GAP_BYTES).contains(&buffer.start) => {
                last.end = last.end.max(buffer.end);
            }
            _ => ranges.push(buffer.clone()),
        }
    }
    let in_file = |range: &Range<u64>| body + range.start..body + range.end;
    file.fetch(&ranges.iter().map(in_file).collect::<Vec<_>>())?;
    for range in ranges {
        file.seek(SeekFrom::Start(body + range.start))?;
        file.read_exact(&mut bytes[range.start as usize..range.end as usize])?;
    }
    Ok(bytes.into())
}

/// Checks the decompressed sizes of the compressed buffers of `columns`.
fn check_compressed(
    batch: &ipc::RecordBatch<'_>,
    checked: &Checked,
    columns: &[usize],
    body: &[u8],
) -> Result<(), ArrowError> {
    let Some(compression) = batch.compression() else {
        return Ok(());
    };
    let mut held = 0;
    for buffer in columns
        .iter()
        .flat_map(|&column| checked.columns[column].clone())
    {
        let buffer = &checked.buffers[buffer];
        let bytes = &body[buffer.bytes.start as usize..buffer.bytes.end as usize];
        check::compressed(compression.codec(), bytes, buffer, &mut held)
            .map_err(ArrowError::IpcError)?;
    }
    Ok(())
}

/// The dictionaries of a file, by their ids.
pub(super) type Dictionaries = HashMap<i64, ArrayRef>;

/// Reads the dictionaries of a file.
pub(super) fn dictionaries(
    layout: &FileLayout,
    file: &mut Input,
) -> Result<Dictionaries, ArrowError> {
    let mut found = Dictionaries::new();
    for block in &layout.dictionaries {
        let metadata = read_metadata(file, block)?;
        let message = parse(layout, &metadata)?;
        let (dictionary, checked) = check::dictionary(&message, &layout.schema, body_bytes(block))
            .map_err(ArrowError::IpcError)?;
        let body = read_body(file, block, &checked, &[0])?;
        if let Some(batch) = dictionary.data() {
            check_compressed(&batch, &checked, &[0], &body)?;
        }
        read_dictionary(
            &body,
            dictionary,
            &layout.schema,
            &mut found,
            &message.version(),
        )?;
    }
    Ok(found)
}

/// Reads the columns of a record batch whose indices are in `projection`.
pub(super) fn read_batch(
    layout: &FileLayout,
    dictionaries: &Dictionaries,
    file: &mut Input,
    block: &Block,
    projection: &[usize],
) -> Result<RecordBatch, ArrowError> {
    if block_bytes(block) <= WHOLE_BYTES {
        let start = block.offset() as u64;
        file.fetch(std::slice::from_ref(&(start..start + block_bytes(block))))?;
    }
    let metadata = read_metadata(file, block)?;
    let message = parse(layout, &metadata)?;
    let (batch, checked) = check::record_batch(&message, &layout.schema, body_bytes(block))
        .map_err(ArrowError::IpcError)?;
    let body = read_body(file, block, &checked, projection)?;
    check_compressed(&batch, &checked, projection, &body)?;
    let schema = Arc::clone(&layout.schema);
    RecordBatchDecoder::try_new(&body, batch, schema, dictionaries, &message.version())?
        .with_projection(Some(projection))
        .read_record_batch()
}

fn parse<'a>(layout: &FileLayout, metadata: &'a [u8]) -> Result<ipc::Message<'a>, ArrowError> {
    let message = check::parse(metadata).map_err(ArrowError::IpcError)?;
    // In files of version 1, messages do not state their version.
    if layout.version == MetadataVersion::V1 || message.version() == layout.version {
        Ok(message)
    } else {
        let cause = "its message and its footer state different versions of the format";
        Err(ArrowError::IpcError(cause.to_owned()))
    }
}
