//! The frames exchanged with a worker process. A frame consists of a length (8 bytes,
//! little-endian), followed by as many bytes as the length says.

use std::collections::HashMap;
use std::io::{BufRead, Cursor, ErrorKind, Read, Write};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{FieldRef, Schema};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use forebay_udfs::RowFailure;

/// The bytes that a worker writes before its first answer. The Python interpreter may have written
/// other output before these bytes.
const GREETING: [u8; 16] = *b"\0forebay-worker\n";
/// Maximum number of bytes of other output before the greeting. A worker that writes more counts as
/// lost.
const NOISE: u64 = 1 << 24;

/// Key of the schema metadata that contains the failed rows of an answer, as JSON.
const FAILED: &str = "failed";

/// The values that a function returned for some rows, and the failures of the rows that failed.
pub type Answer = (ArrayRef, Vec<RowFailure>);

/// Writes a frame: its length, then its bytes.
pub fn write(to: &mut impl Write, frame: &[u8]) -> std::io::Result<()> {
    to.write_all(&(frame.len() as u64).to_le_bytes())?;
    to.write_all(frame)?;
    to.flush()
}

/// Skips input up to the end of a worker's greeting.
pub fn greeted(from: &mut impl BufRead) -> std::io::Result<()> {
    let mut last = [0; GREETING.len()];
    for byte in from.take(NOISE).bytes() {
        last.rotate_left(1);
        last[GREETING.len() - 1] = byte?;
        if last == GREETING {
            return Ok(());
        }
    }
    Err(ErrorKind::UnexpectedEof.into())
}

/// Reads a frame, and returns its bytes after the length. In an answer, the first byte is 0 if a
/// result follows, and 1 if the message of a [`FunctionFault`](forebay_udfs::FunctionFault) follows.
pub fn read(from: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    // Memory is allocated only for received bytes, not for the announced length.
    let mut frame = Vec::new();
    from.take(length).read_to_end(&mut frame)?;
    if (frame.len() as u64) < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(frame)
}

/// Encodes a batch as an Arrow IPC stream.
pub fn encode(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref())?;
    writer.write(batch)?;
    writer.into_inner()
}

/// Decodes a batch from an Arrow IPC stream.
pub fn decode(bytes: &[u8]) -> Result<RecordBatch, ArrowError> {
    let mut batches = StreamReader::try_new(Cursor::new(bytes), None)?;
    match batches.next() {
        Some(batch) => batch,
        None => Err(ArrowError::IpcError(
            "expected a batch, found none".to_owned(),
        )),
    }
}

/// Creates a batch of the arguments of a call.
pub fn arguments(
    fields: &[FieldRef],
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, ArrowError> {
    // Arguments are named by their positions.
    let fields = fields
        .iter()
        .zip(&columns)
        .enumerate()
        .map(|(i, (field, column))| {
            let field = field.as_ref().clone().with_name(format!("{i}"));
            field
                .with_data_type(column.data_type().clone())
                .with_nullable(true)
        });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options)
}

/// Encodes an answer as an Arrow IPC stream.
pub fn encode_answer(value: &FieldRef, answer: Answer) -> Result<Vec<u8>, ArrowError> {
    let (values, failed) = answer;
    let failed: Vec<_> = failed.iter().map(|f| (f.row, &f.cause)).collect();
    let failed = serde_json::to_string(&failed).map_err(|e| ArrowError::IpcError(e.to_string()))?;
    let metadata = HashMap::from([(FAILED.to_owned(), failed)]);
    let schema = Schema::new(vec![Arc::clone(value)]).with_metadata(metadata);
    encode(&RecordBatch::try_new(Arc::new(schema), vec![values])?)
}

/// Decodes an answer. `operator` is the name of the function, which the returned failures contain.
pub fn decode_answer(bytes: &[u8], operator: &str) -> Result<Answer, ArrowError> {
    let batch = decode(bytes)?;
    let failed = batch.schema_ref().metadata().get(FAILED);
    let failed: Vec<(usize, String)> = failed
        .map(|text| serde_json::from_str(text))
        .transpose()
        .map_err(|e| ArrowError::IpcError(e.to_string()))?
        .unwrap_or_default();
    let failed = failed.into_iter().map(|(row, cause)| RowFailure {
        row,
        operator: operator.to_owned(),
        cause,
    });
    Ok((Arc::clone(batch.column(0)), failed.collect()))
}
