//! Fetching the result of a lease from its worker.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow_flight::Ticket;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_ipc::reader::StreamDecoder;
use bytes::Bytes;
use forebay_runtime::cache::Compression;
use forebay_runtime::task::panic_message;
use futures::{FutureExt, Stream, TryStreamExt};
use prost::Message;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::incoming::{Incoming, IncomingMessage};
use super::lock::lock;
use super::security::Credential;
use super::wire::{ResultEnd, ResultOutcome};
use crate::engine::{EngineError, LeaseOutput, WorkerId};

/// Bytes of one message. Workers cut the data of a batch into smaller ones; the description of a
/// batch with very many columns needs the rest.
const MAX_MESSAGE: usize = 256 << 20;

/// Bytes of a message besides its data.
const MESSAGE_HEADERS: usize = 1 << 20;

/// Name of the metadata of a request for a result that asks for its compression.
pub(crate) const COMPRESSION: &str = "forebay-compression";

/// The reason why a result was not fetched.
#[derive(Debug)]
pub(crate) enum FetchError {
    /// The worker does not answer, or ended in the middle.
    Broken(EngineError),
    /// The worker answers, and has no result.
    Answered(EngineError),
}

/// Fetches the result `ticket` of at most `limit` bytes from `worker` over `channel`, on which it is compressed.
pub(crate) async fn fetch(
    channel: Channel,
    credential: &Credential,
    worker: &WorkerId,
    ticket: Bytes,
    compression: Compression,
    limit: usize,
) -> Result<LeaseOutput, FetchError> {
    let mut client = FlightServiceClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE.min(limit.saturating_add(MESSAGE_HEADERS)));
    let answer = client
        .do_get(request(credential, ticket, compression))
        .await
        .map_err(|status| from_status(worker, &status))?;
    let end = Arc::new(Mutex::new(None));
    let incoming = Incoming::new(answer.into_inner(), compression, limit, Arc::clone(&end));
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

/// Returns the request for a result that is compressed on its way.
fn request(credential: &Credential, ticket: Bytes, compression: Compression) -> Request<Ticket> {
    let mut request = credential.request(Ticket { ticket });
    let name = match compression {
        Compression::None => return request,
        Compression::Lz4 => MetadataValue::from_static("lz4"),
        Compression::Zstd => MetadataValue::from_static("zstd"),
    };
    request.metadata_mut().insert(COMPRESSION, name);
    request
}

/// Decodes the batches of `messages`, which are untrusted: a panic of Arrow's decoder becomes an error.
pub(crate) async fn decode(
    messages: impl Stream<Item = Result<IncomingMessage, FlightError>>,
) -> Result<Vec<RecordBatch>, FlightError> {
    let batches = AssertUnwindSafe(decode_trusted(messages)).catch_unwind();
    batches
        .await
        .unwrap_or_else(|panic| Err(FlightError::DecodeError(panic_message(&*panic).to_owned())))
}

/// Decodes batches by Arrow's decoder of streams, to which each message is framed. The columns are the memory of the
/// messages; Arrow's decoder of Flight messages copies them.
async fn decode_trusted(
    messages: impl Stream<Item = Result<IncomingMessage, FlightError>>,
) -> Result<Vec<RecordBatch>, FlightError> {
    let mut messages = std::pin::pin!(messages);
    let mut decoder = StreamDecoder::new();
    let mut batches = Vec::new();
    let mut push = |mut part: Buffer| {
        while !part.is_empty() {
            batches.extend(decoder.decode(&mut part)?);
        }
        Ok::<_, FlightError>(())
    };
    while let Some(IncomingMessage { header, body }) = messages.try_next().await? {
        push(frame(header.len()))?;
        push(Buffer::from(header))?;
        push(body)?;
    }
    // The decoder decodes a message without a body when more bytes follow.
    push(frame(0))?;
    Ok(batches)
}

/// Returns what precedes a header of `size` bytes, or the end of a stream if `size` is 0 (Arrow columnar format 1.5,
/// "Encapsulated message format").
fn frame(size: usize) -> Buffer {
    let size = u32::try_from(size).unwrap_or(u32::MAX);
    Buffer::from([u32::MAX.to_le_bytes(), size.to_le_bytes()].concat())
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
        let (ticket, plain) = (Bytes::new(), Compression::None);
        let error = fetch(channel, &credential, &worker, ticket, plain, 100)
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
