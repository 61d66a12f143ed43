//! Blocks: record batches encoded as Arrow IPC messages. Reading one row reads the row's whole
//! block, so blocks are small.
//!
//! A block consists of the dictionaries of its rows and one record batch. The schema is stored
//! once, at the front of the segment, so that the bytes of a segment up to its end marker are an
//! Arrow IPC stream.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::{
    DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message,
};
use arrow::ipc::{CompressionType, MessageHeader, root_as_message};
use bytes::Bytes;

use super::compression::Compression;

/// The end marker of an Arrow IPC stream.
pub(super) const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// Maximum size of a decoded block in bytes: the largest value of a 32-bit offset. A row that is
/// too large for a block is not stored.
pub(super) const MAX_BLOCK_BYTES: u64 = i32::MAX as u64;

/// Size in bytes of the continuation marker and the length that precede each Arrow IPC message.
const PREFIX: usize = 8;

/// Encodes `schema` as the Arrow IPC message that begins a segment.
pub(super) fn schema_message(schema: &Schema) -> Result<Vec<u8>, ArrowError> {
    let options = IpcWriteOptions::default();
    let mut tracker = DictionaryTracker::new(false);
    let encoded = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
        schema,
        &mut tracker,
        &options,
    );
    let mut bytes = Vec::new();
    write_message(&mut bytes, encoded, &options)?;
    Ok(bytes)
}

/// Encodes the rows of `batch` as a block.
pub(super) fn encode(batch: &RecordBatch, compression: Compression) -> Result<Vec<u8>, ArrowError> {
    let options = IpcWriteOptions::default().try_with_compression(match compression {
        Compression::None => None,
        Compression::Lz4 => Some(CompressionType::LZ4_FRAME),
        Compression::Zstd => Some(CompressionType::ZSTD),
    })?;
    let generator = IpcDataGenerator::default();
    let mut tracker = DictionaryTracker::new(false);
    // Gives the dictionaries the same ids in `tracker` that they have in the schema message.
    generator.schema_to_bytes_with_dictionary_tracker(&batch.schema(), &mut tracker, &options);
    let mut context = IpcWriteContext::default();
    let (dictionaries, rows) = generator.encode(batch, &mut tracker, &options, &mut context)?;
    let mut bytes = Vec::new();
    for message in dictionaries.into_iter().chain([rows]) {
        write_message(&mut bytes, message, &options)?;
    }
    Ok(bytes)
}

/// Decodes a block of `rows` rows whose checksum matched. The writer of the block is not trusted:
/// the sizes that the block states are checked before memory is allocated, and a panic of the
/// decoder becomes an error.
pub(super) fn decode(
    schema_message: &[u8],
    block: Bytes,
    rows: u32,
) -> Result<RecordBatch, String> {
    let claimed = claimed_bytes(&block).ok_or("its Arrow IPC messages are malformed")?;
    if claimed > MAX_BLOCK_BYTES {
        return Err(format!(
            "it claims to hold {claimed} bytes, above the limit of {MAX_BLOCK_BYTES}"
        ));
    }
    guarded(|| {
        let mut decoder = StreamDecoder::new();
        let mut end = Buffer::from(&END);
        for mut part in [Buffer::from(schema_message), Buffer::from(block)] {
            while !part.is_empty() {
                if let Some(batch) = decoder.decode(&mut part)? {
                    return Ok(Some(batch));
                }
            }
        }
        // The decoder returns a record batch with an empty body only once more bytes follow the
        // batch.
        decoder.decode(&mut end)
    })?
    .filter(|batch| batch.num_rows() == rows as usize)
    .ok_or_else(|| format!("it does not hold the expected {rows} rows"))
}

/// Runs `work`, which calls Arrow's code, and turns a panic into an error.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(format!(
                "Arrow's code panicked: {}",
                text.unwrap_or_default()
            ))
        }
    }
}

/// Returns the number of bytes that decoding `block` allocates, as the headers of its buffers
/// state; `None` when the messages in `block` are malformed.
fn claimed_bytes(block: &[u8]) -> Option<u64> {
    let mut rest = block;
    let mut total = 0u64;
    while !rest.is_empty() {
        if rest.get(..4)? != [0xff; 4] {
            return None;
        }
        let length = u32::from_le_bytes(rest.get(4..PREFIX)?.try_into().ok()?) as usize;
        let after = rest.get(PREFIX..)?;
        let message = root_as_message(after.get(..length)?).ok()?;
        let body_length = usize::try_from(message.bodyLength()).ok()?;
        let after = after.get(length..)?;
        let body = after.get(..body_length)?;
        rest = after.get(body_length..)?;
        let batch = match message.header_type() {
            MessageHeader::RecordBatch => message.header_as_record_batch(),
            MessageHeader::DictionaryBatch => message.header_as_dictionary_batch()?.data(),
            _ => return None,
        }?;
        for buffer in batch.buffers().iter().flatten() {
            let start = usize::try_from(buffer.offset()).ok()?;
            let length = usize::try_from(buffer.length()).ok()?;
            let bytes = body.get(start..start.checked_add(length)?)?;
            let claim = match batch.compression() {
                Some(_) if !bytes.is_empty() => {
                    let claim = i64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
                    // The length -1 means that this buffer is not compressed.
                    if claim == -1 {
                        length as u64
                    } else {
                        u64::try_from(claim).ok()?
                    }
                }
                _ => length as u64,
            };
            total = total.checked_add(claim)?;
        }
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, BinaryArray, DictionaryArray, Int32Array, RecordBatchOptions};
    use arrow::datatypes::Int32Type;

    use super::*;

    const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    fn batch() -> RecordBatch {
        let words: DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
        let bytes = BinaryArray::from_vec(vec![&[7; 5000], b"", &[9; 3]]);
        let columns: [(&str, ArrayRef); 3] = [
            (
                "n",
                Arc::new(Int32Array::from(vec![Some(1), None, Some(3)])),
            ),
            ("w", Arc::new(words)),
            ("b", Arc::new(bytes)),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn blocks_are_decoded_as_they_were_encoded() {
        let batch = batch();
        let schema = schema_message(&batch.schema()).unwrap();
        let plain = encode(&batch, Compression::None).unwrap().len();
        for compression in ALL {
            let block = encode(&batch, compression).unwrap();
            assert!(compression == Compression::None || block.len() < plain / 2);
            let again = decode(&schema, block.into(), 3).unwrap();
            assert_eq!(again, batch, "{compression}");
        }
        // A slice of a batch is encoded without the rows outside of the slice.
        assert!(encode(&batch.slice(1, 2), Compression::None).unwrap().len() < 2500);
    }

    #[test]
    fn rows_without_columns_are_counted() {
        let options = RecordBatchOptions::new().with_row_count(Some(5));
        let empty = Arc::new(Schema::empty());
        let batch = RecordBatch::try_new_with_options(empty, vec![], &options).unwrap();
        let schema = schema_message(&batch.schema()).unwrap();
        let block = Bytes::from(encode(&batch, Compression::None).unwrap());
        assert_eq!(decode(&schema, block.clone(), 5).unwrap(), batch);
        assert!(decode(&schema, block, 6).unwrap_err().contains("6 rows"));
    }

    #[test]
    fn hostile_bytes_are_errors() {
        let batch = batch();
        let schema = schema_message(&batch.schema()).unwrap();
        for compression in ALL {
            let block = encode(&batch, compression).unwrap();
            for at in 0..block.len() {
                for flip in [1, 0x80] {
                    let mut bad = block.clone();
                    bad[at] ^= flip;
                    // Damage gives an error or other values, but neither a panic nor an unbounded
                    // allocation.
                    drop(decode(&schema, bad.into(), 3));
                }
            }
            for length in 0..block.len() {
                assert!(decode(&schema, block[..length].to_vec().into(), 3).is_err());
            }
        }
    }

    #[test]
    fn what_a_buffer_claims_is_checked_before_it_is_allocated() {
        let column: ArrayRef = Arc::new(Int32Array::from(vec![7; 4096]));
        let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
        let schema = schema_message(&batch.schema()).unwrap();
        let mut block = encode(&batch, Compression::Lz4).unwrap();
        let claim = (4096i64 * 4).to_le_bytes();
        let claimed = |at: &usize| block[*at..].starts_with(&claim);
        let places: Vec<usize> = (0..block.len()).filter(claimed).collect();
        assert!(!places.is_empty());
        for at in places {
            block[at..at + 8].copy_from_slice(&(1i64 << 60).to_le_bytes());
        }
        let error = decode(&schema, block.into(), 4096).unwrap_err();
        assert!(error.contains("claims to hold"), "{error}");
    }
}
