//! The layout of an Arrow IPC file: footer, blocks, dictionaries.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::{Block, MetadataVersion, root_as_footer, root_as_message};

use super::super::content::{ContentHash, ContentHasher, read_tail};
use super::super::error::SourceError;
use super::super::staged::open;
use super::FORMAT;

const MAGIC: &[u8; 6] = b"ARROW1";

/// Bytes of the end of a file: the footer's length and the magic.
const TAIL_BYTES: u64 = 10;

/// Bytes of a footer at most.
const MAX_FOOTER_BYTES: u64 = 256 << 20;

/// Where the record batches of a file lie.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) content: ContentHash,
    pub(super) schema: SchemaRef,
    pub(super) version: MetadataVersion,
    pub(super) blocks: Vec<Block>,
    pub(super) dictionaries: Vec<Block>,
}

/// Reads the footer of a file, and the row count of each record batch.
pub(super) fn inspect(path: &Path) -> Result<(Layout, Vec<u64>), SourceError> {
    let damaged = |cause: String| SourceError::damaged(path, FORMAT, cause);
    let unreadable = |error| SourceError::unreadable(path, error);
    let (mut file, size) = open(path)?;
    let mut magic = [0; MAGIC.len()];
    if size < TAIL_BYTES + MAGIC.len() as u64 {
        return Err(damaged("it is too short".to_owned()));
    }
    file.read_exact(&mut magic).map_err(unreadable)?;
    match &magic {
        MAGIC => {}
        [0xff, 0xff, 0xff, 0xff, ..] => {
            return Err(damaged(
                "it holds an Arrow stream; write the file format (also called Feather 2) instead"
                    .to_owned(),
            ));
        }
        [b'F', b'E', b'A', b'1', ..] => {
            return Err(damaged(
                "it is a Feather 1 file; write Feather 2 instead".to_owned(),
            ));
        }
        _ => return Err(damaged("it does not begin as an Arrow IPC file".to_owned())),
    }
    let mut tail = read_tail(&mut file, size, 0).map_err(unreadable)?;
    let end = tail.last_chunk().copied().unwrap_or_default();
    let length = read_footer_length(end).map_err(|_| {
        damaged("it does not end as an Arrow IPC file; it may be cut off".to_owned())
    })? as u64;
    if length > MAX_FOOTER_BYTES.min(size - TAIL_BYTES) {
        return Err(damaged(format!(
            "its footer says to be {length} bytes long"
        )));
    }
    let needed = length + TAIL_BYTES;
    if needed > tail.len() as u64 {
        tail = read_tail(&mut file, size, needed).map_err(unreadable)?;
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
    let mut layout = Layout {
        content: content.finish(),
        schema: Arc::new(fb_to_schema(schema)),
        version: footer.version(),
        blocks: footer.recordBatches().iter().flatten().copied().collect(),
        dictionaries: footer.dictionaries().iter().flatten().copied().collect(),
    };
    for block in layout.blocks.iter().chain(&layout.dictionaries) {
        extent(block)
            .filter(|(start, length)| start + length <= size)
            .ok_or_else(|| {
                damaged(format!(
                    "a block at byte {} does not lie within the file",
                    block.offset()
                ))
            })?;
    }
    let mut rows = Vec::with_capacity(layout.blocks.len());
    for (index, block) in layout.blocks.iter().enumerate() {
        let mut message = vec![0; block.metaDataLength() as usize];
        file.seek(SeekFrom::Start(block.offset() as u64))
            .map_err(unreadable)?;
        file.read_exact(&mut message).map_err(unreadable)?;
        let count = row_count(&message)
            .ok_or_else(|| damaged(format!("record batch {index} cannot be read")))?;
        content.update(&message);
        rows.push(count);
    }
    layout.content = content.finish();
    Ok((layout, rows))
}

/// Start and length of a block, where they make sense.
fn extent(block: &Block) -> Option<(u64, u64)> {
    let start = u64::try_from(block.offset()).ok()?;
    let metadata = u64::try_from(block.metaDataLength()).ok()?;
    let body = u64::try_from(block.bodyLength()).ok()?;
    let length = metadata.checked_add(body)?;
    start.checked_add(length)?;
    Some((start, length))
}

/// Bytes of a block.
pub(super) fn block_bytes(block: &Block) -> u64 {
    extent(block).map_or(0, |(_, length)| length)
}

fn row_count(message: &[u8]) -> Option<u64> {
    // Since format 0.15 a marker of four bytes stands before the length of the message.
    let message = match message.get(..4)? {
        [0xff, 0xff, 0xff, 0xff] => message.get(8..)?,
        _ => message.get(4..)?,
    };
    let batch = root_as_message(message).ok()?.header_as_record_batch()?;
    u64::try_from(batch.length())
        .ok()
        .filter(|&rows| i64::try_from(rows).is_ok())
}

fn read_block(file: &mut File, block: &Block) -> Result<Buffer, ArrowError> {
    let (start, length) =
        extent(block).ok_or_else(|| ArrowError::IpcError("a broken block".to_owned()))?;
    // The layout was checked against the file's size, which is checked again when it is opened.
    let mut bytes = MutableBuffer::from_len_zeroed(length as usize);
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes.into())
}

/// A decoder that knows the dictionaries of a file.
pub(super) fn decoder(layout: &Layout, file: &mut File) -> Result<FileDecoder, ArrowError> {
    let mut decoder = FileDecoder::new(Arc::clone(&layout.schema), layout.version);
    for block in &layout.dictionaries {
        let bytes = read_block(file, block)?;
        decoder.read_dictionary(block, &bytes)?;
    }
    Ok(decoder)
}

/// Decodes a record batch.
pub(super) fn read_batch(
    decoder: &FileDecoder,
    file: &mut File,
    block: &Block,
) -> Result<RecordBatch, ArrowError> {
    let bytes = read_block(file, block)?;
    decoder
        .read_record_batch(block, &bytes)?
        .ok_or_else(|| ArrowError::IpcError("a block without a record batch".to_owned()))
}
