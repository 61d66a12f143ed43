//! Fetching the result of a lease from its worker.

use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, Ticket};
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, future};
use prost::Message;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::board::lock;
use super::security::Credential;
use super::wire::{ResultEnd, ResultOutcome};
use crate::engine::{EngineError, LeaseOutput, WorkerId};

/// Largest message of gRPC: its length is a signed number in some implementations.
const LARGEST_MESSAGE: usize = i32::MAX as usize;

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
        .max_decoding_message_size(LARGEST_MESSAGE.min(limit.saturating_add(MESSAGE_HEADERS)));
    let answer = client
        .do_get(credential.request(Ticket { ticket }))
        .await
        .map_err(|status| from_status(worker, &status))?;
    let end = Arc::new(Mutex::new(None));
    let data = bounded(answer.into_inner(), limit, Arc::clone(&end));
    let batches = decode(data).await.map_err(|error| match error {
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

/// Passes the messages with data on, and keeps the last message in `end`. Fails after more than
/// `limit` bytes.
fn bounded(
    messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
    limit: usize,
    end: Arc<Mutex<Option<Bytes>>>,
) -> impl Stream<Item = Result<FlightData, FlightError>> + Send + 'static {
    let mut bytes = 0_usize;
    messages
        .map_err(|status| FlightError::Tonic(Box::new(status)))
        .and_then(move |message| {
            bytes += message.data_body.len() + message.app_metadata.len();
            let passed = if bytes > limit {
                let cause = format!("the result has more than {limit} bytes");
                Err(FlightError::Tonic(Box::new(Status::out_of_range(cause))))
            } else if message.data_header.is_empty() {
                *lock(&end) = Some(message.app_metadata);
                Ok(None)
            } else {
                Ok(Some(message))
            };
            future::ready(passed)
        })
        .try_filter_map(|message| future::ready(Ok(message)))
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
    use super::super::connection::endpoint;
    use super::*;

    #[tokio::test]
    async fn a_worker_that_does_not_answer_is_lost() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let channel = endpoint(&address).unwrap().connect_lazy();
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
