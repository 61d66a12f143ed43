//! The Flight service of a worker: results of leases from memory, everything else from Ballista.

use std::sync::{Arc, Mutex};

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, Result as ActionResult, SchemaResult,
    Ticket,
};
use ballista_executor::flight_service::BallistaFlightService;
use bytes::Bytes;
use forebay_runtime::cache::Compression;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::encode::ResultMessages;
use super::metrics::{STATE_PERIOD, WorkerMetrics};
use super::result_store::ResultStore;
use super::watch::{WATCH, WatchAnswer, WatchRequest};
use crate::ballista::fetch::COMPRESSION;
use crate::ballista::lock::lock;
use crate::ballista::security::Credential;

type Answer<T> = Result<Response<BoxStream<'static, Result<T, Status>>>, Status>;

/// Beginning of the Flight tickets of leases' results, before the job's id. Ballista's own tickets
/// are Protocol Buffers messages, which never begin with a zero byte.
pub(crate) const TICKET: &[u8] = b"\0forebay.result.";

/// The Flight service of a worker.
pub(crate) struct WorkerFlight {
    pub(crate) ballista: BallistaFlightService,
    pub(crate) results: Arc<ResultStore>,
    pub(crate) credential: Credential,
    pub(crate) metrics: WorkerMetrics,
    /// Id under which the worker is registered now.
    pub(crate) id: Arc<Mutex<String>>,
}

impl WorkerFlight {
    /// Sends the result of `job`: its batches, and a message without data at the end.
    fn send_result(&self, job: &[u8], compression: Compression) -> Answer<FlightData> {
        let job = std::str::from_utf8(job)
            .map_err(|_| Status::invalid_argument("the ticket is malformed"))?;
        let stored = self.results.take(job).ok_or_else(|| {
            Status::not_found("the result was not fetched in time, or was fetched before")
        })?;
        Ok(Response::new(
            stream::iter(ResultMessages::new(stored, compression)).boxed(),
        ))
    }

    /// Answers the scheduler, and tells it the state of the worker from then on. The scheduler does not show its token here:
    /// it calls whoever registers as a worker.
    fn watch(&self, body: Bytes) -> Answer<ActionResult> {
        let request = WatchRequest::decode(body)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let current = lock(&self.id).clone();
        if current != request.worker {
            return Err(Status::not_found(format!("this is worker {current}")));
        }
        let proof = self.credential.proof(&request.nonce);
        let answer = WatchAnswer {
            proof: Bytes::copy_from_slice(proof.as_bytes()),
        };
        let answer = ActionResult {
            body: Bytes::from(answer.encode_to_vec()),
        };
        let metrics = self.metrics.clone();
        let ticks = tokio::time::interval(STATE_PERIOD);
        let states = stream::unfold((metrics, ticks), |(metrics, mut ticks)| async move {
            ticks.tick().await;
            let state = ActionResult {
                body: Bytes::from(metrics.state().encode_to_vec()),
            };
            Some((Ok(state), (metrics, ticks)))
        });
        let answer = stream::iter([Ok(answer)]);
        Ok(Response::new(answer.chain(states).boxed()))
    }
}

#[tonic::async_trait]
impl FlightService for WorkerFlight {
    type DoActionStream = BoxStream<'static, Result<ActionResult, Status>>;
    type DoExchangeStream = BoxStream<'static, Result<FlightData, Status>>;
    type DoGetStream = BoxStream<'static, Result<FlightData, Status>>;
    type DoPutStream = BoxStream<'static, Result<PutResult, Status>>;
    type HandshakeStream = BoxStream<'static, Result<HandshakeResponse, Status>>;
    type ListActionsStream = BoxStream<'static, Result<ActionType, Status>>;
    type ListFlightsStream = BoxStream<'static, Result<FlightInfo, Status>>;

    async fn do_get(&self, request: Request<Ticket>) -> Answer<FlightData> {
        let Some(job) = request.get_ref().ticket.strip_prefix(TICKET) else {
            return boxed(self.ballista.do_get(request).await);
        };
        self.credential.check(request.metadata())?;
        self.send_result(job, compression_of(request.metadata())?)
    }

    async fn do_action(&self, request: Request<Action>) -> Answer<ActionResult> {
        if request.get_ref().r#type != WATCH {
            return boxed(self.ballista.do_action(request).await);
        }
        self.watch(request.into_inner().body)
    }

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<HandshakeResponse> {
        boxed(self.ballista.handshake(request).await)
    }

    async fn list_actions(&self, request: Request<Empty>) -> Answer<ActionType> {
        boxed(self.ballista.list_actions(request).await)
    }

    async fn list_flights(&self, request: Request<Criteria>) -> Answer<FlightInfo> {
        boxed(self.ballista.list_flights(request).await)
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Answer<PutResult> {
        // Ballista's own reads all that the client sends before it refuses.
        Err(Status::unimplemented("do_put"))
    }

    async fn do_exchange(&self, request: Request<Streaming<FlightData>>) -> Answer<FlightData> {
        boxed(self.ballista.do_exchange(request).await)
    }

    async fn get_schema(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        self.ballista.get_schema(request).await
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.ballista.get_flight_info(request).await
    }

    async fn poll_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        self.ballista.poll_flight_info(request).await
    }
}

/// Returns the compression that the client of a request asks for.
fn compression_of(metadata: &MetadataMap) -> Result<Compression, Status> {
    let Some(name) = metadata.get(COMPRESSION) else {
        return Ok(Compression::None);
    };
    let name = String::from_utf8_lossy(name.as_bytes());
    name.parse().map_err(Status::invalid_argument)
}

/// Gives the stream of an answer of Ballista's service its type here.
fn boxed<T, S>(answer: Result<Response<S>, Status>) -> Answer<T>
where
    S: futures::Stream<Item = Result<T, Status>> + Send + 'static,
{
    answer.map(|response| response.map(StreamExt::boxed))
}
