//! A bare Flight server, the rival of large leases.

use std::error::Error;

use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, Result as ActionResult, SchemaResult,
    Ticket,
};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use crate::process::{batch, loopback};

/// Answers `do_get` with rows of as many bytes as the ticket says.
#[derive(Debug)]
struct Rows;

type Answer<T> = Result<Response<T>, Status>;
type Messages<T> = BoxStream<'static, Result<T, Status>>;

fn refused<T>() -> Result<T, Status> {
    Err(Status::unimplemented("only do_get is served"))
}

#[tonic::async_trait]
impl FlightService for Rows {
    type DoActionStream = Messages<ActionResult>;
    type DoExchangeStream = Messages<FlightData>;
    type DoGetStream = Messages<FlightData>;
    type DoPutStream = Messages<PutResult>;
    type HandshakeStream = Messages<HandshakeResponse>;
    type ListActionsStream = Messages<ActionType>;
    type ListFlightsStream = Messages<FlightInfo>;

    async fn do_get(&self, request: Request<Ticket>) -> Answer<Messages<FlightData>> {
        let ticket = request.into_inner().ticket;
        let bytes = { std::str::from_utf8(&ticket).ok() }.and_then(|text| text.parse().ok());
        let rows = bytes.and_then(batch);
        let rows = rows.ok_or_else(|| Status::invalid_argument("no number of bytes"))?;
        let messages = FlightDataEncoderBuilder::new().build(stream::iter([Ok(rows)]));
        Ok(Response::new(messages.map_err(Status::from).boxed()))
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Messages<HandshakeResponse>> {
        refused()
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Answer<Messages<FlightInfo>> {
        refused()
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        refused()
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<PollInfo> {
        refused()
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        refused()
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Answer<Messages<PutResult>> {
        refused()
    }

    async fn do_exchange(&self, _: Request<Streaming<FlightData>>) -> Answer<Messages<FlightData>> {
        refused()
    }

    async fn do_action(&self, _: Request<Action>) -> Answer<Messages<ActionResult>> {
        refused()
    }

    async fn list_actions(&self, _: Request<Empty>) -> Answer<Messages<ActionType>> {
        refused()
    }
}

/// Serves rows until the process is killed.
pub(crate) async fn serve() -> Result<(), Box<dyn Error>> {
    let incoming = TcpIncoming::bind(loopback())?.with_nodelay(Some(true));
    println!("{}", incoming.local_addr()?);
    let server = Server::builder().add_service(FlightServiceServer::new(Rows));
    Ok(server.serve_with_incoming(incoming).await?)
}
