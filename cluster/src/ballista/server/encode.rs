//! The messages in which a result travels: its schema, its batches, and its end.

use std::collections::VecDeque;
use std::vec::IntoIter;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow_flight::FlightData;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use bytes::Bytes;
use forebay_runtime::cache::Compression;
use prost::Message;
use tonic::Status;

use super::result_store::StoredResult;
use crate::ballista::piece::{PIECE, PieceEncoder};
use crate::ballista::wire::{ResultEnd, ResultOutcome};
use crate::handler::HandlerError;

/// The messages of a result. The client gets the batches as they are, even if they have no rows,
/// and dictionaries stay dictionaries. Arrow's own encoder of streams cuts and drops batches, and
/// loses metadata of nested fields.
pub(crate) struct ResultMessages {
    batches: IntoIter<RecordBatch>,
    /// Messages whose bodies are still to be compressed.
    ready: VecDeque<FlightData>,
    encoder: BatchEncoder,
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
        let mut encoder = BatchEncoder::default();
        let ready = batches.first().map(|batch| encoder.encode_schema(batch));
        let end = ResultEnd {
            outcome: Some(outcome),
        }
        .encode_to_vec();
        Self {
            batches: batches.into_iter(),
            ready: ready.into_iter().collect(),
            encoder,
            pieces: PieceEncoder::new(compression),
            end: Some(FlightData {
                app_metadata: Bytes::from(end),
                ..FlightData::default()
            }),
            _stored: stored,
        }
    }
}

impl ResultMessages {
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
        match self.encoder.encode(&batch) {
            Ok(messages) => self
                .ready
                .extend(messages.flat_map(|m| cut(m, is_announced))),
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

/// Cuts the body of `message` into messages of at most [`PIECE`] bytes. The first one announces the size of the body if
/// `is_announced`, or if there are several.
fn cut(message: FlightData, is_announced: bool) -> impl Iterator<Item = FlightData> {
    let FlightData {
        data_header,
        mut data_body,
        ..
    } = message;
    let size = data_body.len() as u64;
    let app_metadata = if data_body.len() > PIECE || is_announced {
        Bytes::copy_from_slice(&size.to_le_bytes())
    } else {
        Bytes::new()
    };
    let piece = data_body.split_to(data_body.len().min(PIECE));
    let first = FlightData {
        data_header,
        app_metadata,
        data_body: piece,
        flight_descriptor: None,
    };
    let rest = std::iter::from_fn(move || {
        let piece = data_body.split_to(data_body.len().min(PIECE));
        (!piece.is_empty()).then(|| FlightData {
            data_body: piece,
            ..FlightData::default()
        })
    });
    std::iter::once(first).chain(rest)
}

/// Encoder of batches.
struct BatchEncoder {
    generator: IpcDataGenerator,
    dictionaries: DictionaryTracker,
    options: IpcWriteOptions,
    context: IpcWriteContext,
}

impl Default for BatchEncoder {
    fn default() -> Self {
        Self {
            generator: IpcDataGenerator::default(),
            // A dictionary may differ from that of the batch before.
            dictionaries: DictionaryTracker::new(false),
            options: IpcWriteOptions::default(),
            context: IpcWriteContext::default(),
        }
    }
}

impl BatchEncoder {
    fn encode_schema(&mut self, batch: &RecordBatch) -> FlightData {
        let Self {
            generator,
            dictionaries,
            options,
            ..
        } = self;
        let schema = batch.schema_ref();
        generator
            .schema_to_bytes_with_dictionary_tracker(schema, dictionaries, options)
            .into()
    }

    fn encode(
        &mut self,
        batch: &RecordBatch,
    ) -> Result<impl Iterator<Item = FlightData> + use<>, ArrowError> {
        let Self {
            generator,
            dictionaries,
            options,
            context,
        } = self;
        let (dictionaries, batch) = generator.encode(batch, dictionaries, options, context)?;
        Ok(dictionaries
            .into_iter()
            .chain([batch])
            .map(FlightData::from))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use arrow::array::{ArrayRef, BinaryArray, UInt64Array};
    use arrow_flight::error::FlightError;
    use arrow_ipc::CompressionType;
    use futures::stream;

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
    async fn a_piece_has_the_size_that_was_announced() {
        for compression in [Compression::Lz4, Compression::Zstd] {
            for announced in [0_u64, 10, 999_000, 1_100_000, 3 << 20] {
                let mut messages = messages(&[large(10)], compression).await;
                messages[1].app_metadata = Bytes::copy_from_slice(&announced.to_le_bytes());
                let received = received(messages, compression, 1 << 30).await;
                assert!(received.is_err(), "{compression} {announced}");
            }
            let mut messages = messages(&[large(10)], compression).await;
            messages[1].app_metadata = Bytes::copy_from_slice(&u64::MAX.to_le_bytes());
            let error = received(messages, compression, 1 << 30).await.unwrap_err();
            assert!(error.to_string().contains("larger than"), "{error}");
        }
    }

    /// Arrow's decoder allocates the size in a buffer's first bytes before it reads the rest.
    #[tokio::test]
    async fn batches_that_arrow_compressed_are_refused() {
        for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
            let options = IpcWriteOptions::default().try_with_compression(Some(codec));
            let mut encoder = BatchEncoder {
                options: options.unwrap(),
                ..BatchEncoder::default()
            };
            let batch = large(3);
            let schema = encoder.encode_schema(&batch);
            let mut message = encoder.encode(&batch).unwrap().next().unwrap();
            let mut body = message.data_body.to_vec();
            body[..8].copy_from_slice(&(i64::MAX >> 8).to_le_bytes());
            message.data_body = Bytes::from(body);
            let error = received(vec![schema, message], Compression::None, 1 << 30)
                .await
                .unwrap_err();
            assert!(error.to_string().contains("are compressed"), "{error}");
        }
    }
}
