//! The messages in which a result travels: its schema, its batches, and its end.

use std::collections::VecDeque;
use std::vec::IntoIter;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow_flight::FlightData;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use bytes::Bytes;
use prost::Message;
use tonic::Status;

use super::result_store::StoredResult;
use crate::ballista::wire::{ResultEnd, ResultOutcome};
use crate::handler::HandlerError;

/// Bytes of data in one message. A larger body is cut, and the first message of it announces its
/// size. Pieces that fit into a processor's cache are copied faster than whole batches, and need
/// less memory on both sides.
const PIECE: usize = 2 << 20;

/// The messages of a result. The client gets the batches as they are, even if they have no rows,
/// and dictionaries stay dictionaries. Arrow's own encoder of streams cuts and drops batches, and
/// loses metadata of nested fields.
pub(crate) struct ResultMessages {
    batches: IntoIter<RecordBatch>,
    /// Messages that are ready.
    ready: VecDeque<FlightData>,
    encoder: BatchEncoder,
    /// The last message.
    end: Option<FlightData>,
    /// Keeps the room in the store until all was sent, or the client hung up.
    _stored: StoredResult,
}

impl ResultMessages {
    /// Returns the messages of `stored`.
    pub(crate) fn new(stored: StoredResult) -> Self {
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
            end: Some(FlightData {
                app_metadata: Bytes::from(end),
                ..FlightData::default()
            }),
            _stored: stored,
        }
    }
}

impl Iterator for ResultMessages {
    type Item = Result<FlightData, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(message) = self.ready.pop_front() {
            return Some(Ok(message));
        }
        let Some(batch) = self.batches.next() else {
            return self.end.take().map(Ok);
        };
        match self.encoder.encode(&batch) {
            Ok(messages) => self.ready.extend(messages.flat_map(cut)),
            Err(error) => {
                // The result ends here, without its last message.
                self.batches = Vec::new().into_iter();
                self.end = None;
                let cause = format!("a batch cannot be encoded: {error}");
                return Some(Err(Status::invalid_argument(cause)));
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

/// Cuts the body of `message` into messages of at most [`PIECE`] bytes.
fn cut(message: FlightData) -> impl Iterator<Item = FlightData> {
    let FlightData {
        data_header,
        mut data_body,
        ..
    } = message;
    let size = data_body.len() as u64;
    let is_cut = data_body.len() > PIECE;
    let app_metadata = if is_cut {
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

/// Encoder of batches without compression.
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
