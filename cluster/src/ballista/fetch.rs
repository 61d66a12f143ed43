//! Fetching the result of a lease from its worker.

use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::buffer::{Buffer, MutableBuffer};
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, Ticket};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use prost::Message;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::lock::lock;
use super::rpc::await_end;
use super::security::Credential;
use super::wire::{ResultEnd, ResultOutcome};
use crate::engine::{EngineError, LeaseOutput, WorkerId};

/// Bytes of one message. Workers cut the data of a batch into smaller ones; the description of a
/// batch with very many columns needs the rest.
const MAX_MESSAGE: usize = 256 << 20;

/// Bytes of a message besides its data.
const MESSAGE_HEADERS: usize = 1 << 20;

/// The reason why a result was not fetched.
#[derive(Debug)]
pub(crate) enum FetchError {
    /// The worker does not answer, or ended in the middle.
    Broken(EngineError),
    /// The worker answers, and has no result.
    Answered(EngineError),
}

/// Fetches the result `ticket` of at most `limit` bytes from `worker` over `channel`.
pub(crate) async fn fetch(
    channel: Channel,
    credential: &Credential,
    worker: &WorkerId,
    ticket: Bytes,
    limit: usize,
) -> Result<LeaseOutput, FetchError> {
    let mut client = FlightServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE.min(limit.saturating_add(MESSAGE_HEADERS)));
    let answer = client
        .do_get(credential.request(Ticket { ticket }))
        .await
        .map_err(|status| from_status(worker, &status))?;
    let end = Arc::new(Mutex::new(None));
    let incoming = Incoming {
        messages: answer.into_inner(),
        remaining: limit,
        end: Arc::clone(&end),
    };
    let batches = decode(incoming.joined())
        .await
        .map_err(|error| match error {
            FlightError::Tonic(status) => from_status(worker, &status),
            error => FetchError::Answered(EngineError::Refused {
                cause: format!("the result of worker {} is malformed: {error}", worker.0),
            }),
        })?;
    let end = lock(&end).take();
    match end
        .and_then(|end| ResultEnd::decode(end).ok())
        .and_then(|end| end.outcome)
    {
        Some(ResultOutcome::Summary(summary)) => Ok(LeaseOutput {
            worker: worker.clone(),
            batches,
            summary,
        }),
        Some(ResultOutcome::Unfit(cause)) => Err(FetchError::Answered(EngineError::WorkerUnfit {
            worker: worker.clone(),
            cause,
        })),
        None => Err(FetchError::Broken(lost(worker, "the result has no end"))),
    }
}

/// The messages of a result, as they arrive.
struct Incoming {
    messages: Streaming<FlightData>,
    /// Bytes that the rest of the result may have.
    remaining: usize,
    /// The last message, once it is there.
    end: Arc<Mutex<Option<Bytes>>>,
}

impl Incoming {
    /// Returns the messages with data, whose pieces are put together.
    fn joined(self) -> impl Stream<Item = Result<FlightData, FlightError>> + Send + 'static {
        stream::try_unfold(self, async |mut incoming| match incoming.next().await {
            Ok(message) => Ok(message.map(|message| (message, incoming))),
            Err(status) => Err(FlightError::Tonic(Box::new(status))),
        })
    }

    async fn next(&mut self) -> Result<Option<FlightData>, Status> {
        let Some(mut message) = self.receive().await? else {
            return Ok(None);
        };
        let announced = std::mem::take(&mut message.app_metadata);
        if message.data_header.is_empty() {
            await_end(&mut self.messages).await;
            *lock(&self.end) = Some(announced);
            return Ok(None);
        }
        if !announced.is_empty() {
            let size = <[u8; 8]>::try_from(&announced[..])
                .map_err(|_| Status::invalid_argument("the size of a batch is malformed"))?;
            let size = usize::try_from(u64::from_le_bytes(size)).unwrap_or(usize::MAX);
            message.data_body = self.join(message.data_body, size).await?;
        }
        Ok(Some(message))
    }

    /// Puts the pieces of a body of `size` bytes together, where Arrow can use them in place.
    async fn join(&mut self, first: Bytes, size: usize) -> Result<Bytes, Status> {
        // It is checked before it is allocated.
        if size.saturating_sub(first.len()) > self.remaining {
            return Err(Self::too_large());
        }
        let mut body = MutableBuffer::with_capacity(size);
        let mut piece = first;
        loop {
            if body.len() + piece.len() > size {
                return Err(Status::invalid_argument("a batch is larger than announced"));
            }
            body.extend_from_slice(&piece);
            if body.len() == size {
                return Ok(Bytes::from_owner(AlignedBody(Buffer::from(body))));
            }
            piece = match self.receive().await? {
                Some(message)
                    if message.data_header.is_empty() && !message.data_body.is_empty() =>
                {
                    message.data_body
                }
                _ => {
                    return Err(Status::invalid_argument(
                        "a batch is smaller than announced",
                    ));
                }
            };
        }
    }

    async fn receive(&mut self) -> Result<Option<FlightData>, Status> {
        let Some(message) = self.messages.message().await? else {
            return Ok(None);
        };
        let bytes = message.data_body.len() + message.app_metadata.len();
        self.remaining = self
            .remaining
            .checked_sub(bytes)
            .ok_or_else(Self::too_large)?;
        Ok(Some(message))
    }

    fn too_large() -> Status {
        Status::out_of_range("the result is larger than this client accepts")
    }
}

/// The data of a batch, where Arrow can use it in place.
struct AlignedBody(Buffer);

impl AsRef<[u8]> for AlignedBody {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Decodes the batches of `messages`.
async fn decode(
    messages: impl Stream<Item = Result<FlightData, FlightError>> + Send + 'static,
) -> Result<Vec<RecordBatch>, FlightError> {
    let mut batches = Vec::new();
    let mut decoder = FlightDataDecoder::new(messages);
    while let Some(decoded) = decoder.next().await {
        if let DecodedPayload::RecordBatch(batch) = decoded?.payload {
            batches.push(batch);
        }
    }
    Ok(batches)
}

/// Returns the error for the answer `status` of `worker`.
fn from_status(worker: &WorkerId, status: &Status) -> FetchError {
    let cause = status.message();
    match status.code() {
        Code::NotFound => FetchError::Answered(lost(worker, cause)),
        Code::Unauthenticated
        | Code::PermissionDenied
        | Code::InvalidArgument
        | Code::OutOfRange
        | Code::Unimplemented => FetchError::Answered(EngineError::Refused {
            cause: cause.to_owned(),
        }),
        _ => FetchError::Broken(lost(worker, cause)),
    }
}

fn lost(worker: &WorkerId, cause: &str) -> EngineError {
    EngineError::WorkerLost {
        worker: Some(worker.clone()),
        cause: cause.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Security;
    use super::super::connection::Dialer;
    use super::*;

    #[tokio::test]
    async fn a_worker_that_does_not_answer_is_lost() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let channel = Dialer::default().endpoint(&address).unwrap().connect_lazy();
        let credential = Security::default().credential().unwrap();
        let worker = WorkerId("worker".to_owned());
        let error = fetch(channel, &credential, &worker, Bytes::new(), 100)
            .await
            .unwrap_err();
        let FetchError::Broken(EngineError::WorkerLost {
            worker: Some(lost), ..
        }) = &error
        else {
            panic!("{error:?}")
        };
        assert_eq!(*lost, worker);
    }
}
