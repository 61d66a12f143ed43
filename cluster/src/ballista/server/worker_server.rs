//! The servers of a worker: results and tasks on one port, probes and metrics on another.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_flight::flight_service_server::FlightServiceServer;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::connection::MAX_REQUESTS;
use super::flight::WorkerFlight;
use super::front::TaskFront;
use super::http;
use super::metrics::WorkerMetrics;
use crate::ballista::StartError;
use crate::ballista::error::describe;
use crate::ballista::security::Credential;

/// Listens on `address`. Returns the address with its port.
pub(crate) fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let listen_error = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(listen_error)?;
    listener.set_nonblocking(true).map_err(listen_error)?;
    let address = listener.local_addr().map_err(listen_error)?;
    Ok((listener, address))
}

/// Returns the probes and the metrics of a worker. The metrics need the token.
pub(crate) fn routes(
    metrics: &WorkerMetrics,
    credential: &Credential,
    is_ready: &Arc<AtomicBool>,
) -> Routes {
    let (metrics, is_ready) = (metrics.clone(), Arc::clone(is_ready));
    let probes = http::probes(
        move || is_ready.load(Ordering::Relaxed),
        "not registered with the scheduler",
    );
    let metrics = http::metrics(move || metrics.text());
    Routes::from(probes.merge(http::guarded(metrics, credential.clone())))
}

/// Serves probes and metrics.
pub(crate) async fn serve_http(server: Server, listener: tokio::net::TcpListener, routes: Routes) {
    let incoming = TcpIncoming::from(listener);
    let server = server.accept_http1(true).add_routes(routes);
    if let Err(error) = server.serve_with_incoming(incoming).await {
        tracing::error!("metrics are not served any more: {}", describe(&error));
    }
}

/// Serves results to clients and the data of other jobs to executors, and accepts tasks.
pub(crate) async fn serve(
    server: Server,
    listener: tokio::net::TcpListener,
    flight: WorkerFlight,
    front: TaskFront,
) {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = server
        .max_concurrent_streams(MAX_REQUESTS)
        .add_service(FlightServiceServer::new(flight))
        .add_service(front)
        .serve_with_incoming(incoming);
    if let Err(error) = server.await {
        tracing::error!(
            "the worker does not serve results any more: {}",
            describe(&error)
        );
    }
}
