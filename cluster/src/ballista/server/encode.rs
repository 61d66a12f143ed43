//! The messages in which a result travels: its schema, its batches, and its end.

use std::collections::VecDeque;
use std::vec::IntoIter;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow_flight::FlightData;
use arrow_ipc::writer::StreamEncoder;
use bytes::Bytes;
use forebay_runtime::cache::Compression;
use prost::Message;
use tonic::Status;

use super::ipc_message::{IpcMessage, messages};
use super::result_store::StoredResult;
use crate::ballista::piece::{PIECE, PieceEncoder};
use crate::ballista::wire::{ResultEnd, ResultOutcome};
use crate::handler::HandlerError;

/// The messages of a result. The client gets the batches as they are, even if they have no rows,
/// and dictionaries stay dictionaries. Arrow's own encoder of Flight streams cuts and drops batches,
/// loses metadata of nested fields, and copies each batch.
pub(crate) struct ResultMessages {
    batches: IntoIter<RecordBatch>,
    /// Pieces of the batch that is being sent, which are still to be compressed.
    ready: VecDeque<FlightData>,
    /// Encoder of batches. It begins with the first batch, because its first message is the schema.
    encoder: Option<StreamEncoder>,
    pieces: PieceEncoder,
    /// The last message.
    end: Option<FlightData>,
    /// Keeps the room in the store until all was sent, or the client hung up.
    _stored: StoredResult,
}

impl ResultMessages {
    /// Returns the messages of `stored`, compressed by `compression`.
    pub(crate) fn new(stored: StoredResult, compression: Compression) -> Self {
        let (batches, outcome) = match &stored.outcome {
            Ok(output) => (
                output.batches.clone(),
                ResultOutcome::Summary(output.summary.clone()),
            ),
            Err(HandlerError::Unfit { cause }) => (vec![], ResultOutcome::Unfit(cause.clone())),
        };
        let end = ResultEnd {
            outcome: Some(outcome),
        }
        .encode_to_vec();
        Self {
            batches: batches.into_iter(),
            ready: VecDeque::new(),
            encoder: None,
            pieces: PieceEncoder::new(compression),
            end: Some(FlightData {
                app_metadata: Bytes::from(end),
                ..FlightData::default()
            }),
            _stored: stored,
        }
    }

    /// Returns the messages of `batch`. Their bodies are the memory of the batch.
    fn encode(&mut self, batch: &RecordBatch) -> Result<Vec<IpcMessage>, ArrowError> {
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder,
            none => none.insert(StreamEncoder::try_new(batch.schema_ref())?),
        };
        messages(encoder.encode(batch)?)
    }

    /// Compresses the body of `message`. A message at a time is compressed, so that little memory is needed.
    fn compressed(&mut self, message: FlightData) -> Result<FlightData, Status> {
        let data_body = self.pieces.encode(message.data_body);
        let data_body = data_body
            .map_err(|error| Status::internal(format!("a batch cannot be compressed: {error}")))?;
        Ok(FlightData {
            data_body,
            ..message
        })
    }
}

impl Iterator for ResultMessages {
    type Item = Result<FlightData, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(message) = self.ready.pop_front() {
            return Some(self.compressed(message));
        }
        let Some(batch) = self.batches.next() else {
            return self.end.take().map(Ok);
        };
        let is_announced = !self.pieces.is_plain();
        match self.encode(&batch) {
            Ok(messages) => self
                .ready
                .extend(messages.into_iter().flat_map(|m| cut(m, is_announced))),
            Err(error) => {
                // The result ends here, without its last message.
                self.batches = Vec::new().into_iter();
                self.end = None;
                let cause = format!("a batch cannot be encoded: {error}");
                return Some(Err(Status::invalid_argument(cause)));
            }
        }
        let message = self.ready.pop_front()?;
        Some(self.compressed(message))
    }
}

/// Cuts the body of `message` into pieces of [`PIECE`] bytes. The first one announces the size of the body if
/// `is_announced`, or if there are several.
fn cut(message: IpcMessage, is_announced: bool) -> impl Iterator<Item = FlightData> {
    let IpcMessage { header, mut body } = message;
    let size = body.len();
    let app_metadata = if size > PIECE || (is_announced && size > 0) {
        Bytes::copy_from_slice(&(size as u64).to_le_bytes())
    } else {
        Bytes::new()
    };
    let first = FlightData {
        data_header: header,
        app_metadata,
        data_body: body.take(PIECE),
        flight_descriptor: None,
    };
    let rest = std::iter::from_fn(move || {
        (body.len() > 0).then(|| FlightData {
            data_body: body.take(PIECE),
            ..FlightData::default()
        })
    });
    std::iter::once(first).chain(rest)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use arrow::array::{ArrayRef, BinaryArray, UInt64Array};
    use arrow_flight::error::FlightError;
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::IpcWriteOptions;
    use futures::stream;

    use super::super::ipc_message::messages as messages_of;
    use super::super::result_store::ResultStore;
    use super::*;
    use crate::ballista::fetch::decode;
    use crate::ballista::incoming::Incoming;
    use crate::handler::HandlerOutput;

    const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    /// A batch of `rows` rows of 100 KB that compress well.
    fn large(rows: u64) -> RecordBatch {
        let row = vec![7_u8; 100_000];
        let bytes: ArrayRef = Arc::new(BinaryArray::from_iter_values((0..rows).map(|_| &row)));
        let number: ArrayRef = Arc::new(UInt64Array::from_iter_values(0..rows));
        RecordBatch::try_from_iter([("number", number), ("bytes", bytes)]).unwrap()
    }

    async fn messages(batches: &[RecordBatch], compression: Compression) -> Vec<FlightData> {
        let store = ResultStore::new(1 << 30);
        let output = HandlerOutput {
            batches: batches.to_vec(),
            summary: Bytes::from_static(b"summary"),
        };
        store.put("job".to_owned(), Ok(output)).await;
        let stored = store.take("job").unwrap();
        ResultMessages::new(stored, compression)
            .map(Result::unwrap)
            .collect()
    }

    /// Receives `messages` as a client does that accepts `limit` bytes.
    async fn received(
        messages: Vec<FlightData>,
        compression: Compression,
        limit: usize,
    ) -> Result<Vec<RecordBatch>, FlightError> {
        let end = Arc::new(Mutex::new(None));
        let messages = stream::iter(messages.into_iter().map(Ok));
        decode(Incoming::new(messages, compression, limit, end).joined()).await
    }

    fn body_bytes(messages: &[FlightData]) -> usize {
        messages.iter().map(|m| m.data_body.len()).sum()
    }

    #[tokio::test]
    async fn compressed_results_are_smaller_and_the_same() {
        let batches = [large(50), large(0), large(1), large(21)];
        for compression in ALL {
            let messages = messages(&batches, compression).await;
            let sent = body_bytes(&messages);
            if compression == Compression::None {
                assert!(sent > 7_200_000);
            } else {
                assert!(sent < 720_000, "{compression}: {sent}");
            }
            let batches_received = received(messages, compression, 1 << 30).await.unwrap();
            assert_eq!(batches_received, batches, "{compression}");
        }
    }

    #[tokio::test]
    async fn a_small_message_does_not_become_a_large_batch() {
        for compression in ALL {
            let messages = messages(&[large(10), large(10)], compression).await;
            received(messages.clone(), compression, 2_100_000)
                .await
                .unwrap();
            let error = received(messages, compression, 1_900_000)
                .await
                .unwrap_err();
            assert!(error.to_string().contains("larger than"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_batch_has_the_size_that_its_header_says() {
        for compression in ALL {
            for announced in [0_u64, 10, 999_000, 1_100_000, 3 << 20, u64::MAX] {
                let mut messages = messages(&[large(10)], compression).await;
                messages[1].app_metadata = Bytes::copy_from_slice(&announced.to_le_bytes());
                let error = received(messages, compression, 1 << 30).await.unwrap_err();
                let error = error.to_string();
                assert!(error.contains("another size"), "{compression}: {error}");
            }
        }
    }

    #[tokio::test]
    async fn a_piece_fills_its_place() {
        for compression in ALL {
            let whole = messages(&[large(10)], compression).await;
            assert!(whole.len() > 4);
            let is_refused = async |change: fn(&mut Vec<FlightData>)| {
                let mut messages = whole.clone();
                change(&mut messages);
                assert!(
                    received(messages, compression, 1 << 30).await.is_err(),
                    "{compression}"
                );
            };
            is_refused(|messages| drop(messages[1].data_body.split_off(9))).await;
            is_refused(|messages| messages[2].data_body = Bytes::from(vec![7; PIECE + 1])).await;
            is_refused(|messages| drop(messages.remove(2))).await;
            is_refused(|messages| messages[2] = messages[1].clone()).await;
            is_refused(|messages| messages.truncate(3)).await;
        }
    }

    /// Arrow's decoder allocates the size in a buffer's first bytes before it reads the rest.
    #[tokio::test]
    async fn batches_that_arrow_compressed_are_refused() {
        for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
            let options = IpcWriteOptions::default().try_with_compression(Some(codec));
            let batch = large(3);
            let mut encoder =
                StreamEncoder::try_new_with_options(batch.schema_ref(), options.unwrap()).unwrap();
            let sent = messages_of(encoder.encode(&batch).unwrap()).unwrap();
            let mut sent: Vec<FlightData> = sent.into_iter().flat_map(|m| cut(m, false)).collect();
            let mut body = sent[1].data_body.to_vec();
            body[..8].copy_from_slice(&(i64::MAX >> 8).to_le_bytes());
            sent[1].data_body = Bytes::from(body);
            let error = received(sent, Compression::None, 1 << 30)
                .await
                .unwrap_err();
            assert!(error.to_string().contains("are compressed"), "{error}");
        }
    }
}
