//! Rows of leases as bytes, which Ray's object store carries: a stream of Arrow's IPC format.
//!
//! <https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format>

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;

/// Encodes batches of one schema. No batches are no bytes.
pub(crate) fn encode(batches: &[RecordBatch]) -> Result<Buffer, ArrowError> {
    let Some(first) = batches.first() else {
        return Ok(Buffer::default());
    };
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, first.schema_ref())?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.finish()?;
    drop(writer);
    Ok(Buffer::from_vec(bytes))
}

/// Decodes what [`encode`] returned. The batches refer to `bytes` where these are aligned.
pub(crate) fn decode(bytes: Bytes) -> Result<Vec<RecordBatch>, ArrowError> {
    let mut bytes = Buffer::from(bytes);
    let mut decoder = StreamDecoder::new();
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        batches.extend(decoder.decode(&mut bytes)?);
    }
    decoder.finish()?;
    Ok(batches)
}
