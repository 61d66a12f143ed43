//! The server of the cluster's gRPC service.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::{FutureExt, Stream};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::service_fn;

use super::blob_source::GET;
use super::service::ClusterService;
use crate::ballista::rpc::{HAS, PUT, REPORT, STATUS, SUBMIT, WORKERS};
use crate::ballista::wire::{BlobChunk, Nothing};

/// The server's side of the service.
#[derive(Clone)]
pub(crate) struct ClusterServer(pub(crate) Arc<ClusterService>);

impl NamedService for ClusterServer {
    const NAME: &'static str = "forebay.v1.Cluster";
}

impl Service<http::Request<Body>> for ClusterServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = Arc::clone(&self.0);
        let method = request.uri().path().to_owned();
        match method.as_str() {
            SUBMIT => streaming(request, move |r| async move { service.submit(r).await }),
            GET => streaming(request, move |r| async move { service.get_blob(r) }),
            HAS => unary(request, move |r| async move { service.has_blob(r) }),
            REPORT => unary(request, move |r| async move { service.report(r).await }),
            STATUS => unary(request, move |r| async move { service.status(r) }),
            WORKERS => unary(request, move |r| async move { service.list_workers(r) }),
            PUT => async move {
                let put = service_fn(move |r: Request<Streaming<BlobChunk>>| {
                    let service = Arc::clone(&service);
                    async move { service.put_blob(r).await }
                });
                let codec = ProstCodec::<Nothing, BlobChunk>::default();
                Ok(Grpc::new(codec).client_streaming(put, request).await)
            }
            .boxed(),
            _ => async { Ok(Status::unimplemented("no such method").into_http()) }.boxed(),
        }
    }
}

type Answer = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

/// Answers a request of one message with one message.
fn unary<M, N, F>(
    request: http::Request<Body>,
    answer: impl FnOnce(Request<M>) -> F + Send + 'static,
) -> Answer
where
    M: prost::Message + Default + 'static,
    N: prost::Message + Default + 'static,
    F: Future<Output = Result<Response<N>, Status>> + Send + 'static,
{
    async move {
        let mut calls = Grpc::new(ProstCodec::<N, M>::default());
        Ok(calls.unary(once(answer), request).await)
    }
    .boxed()
}

/// Answers a request of one message with a stream of messages.
fn streaming<M, N, S, F>(
    request: http::Request<Body>,
    answer: impl FnOnce(Request<M>) -> F + Send + 'static,
) -> Answer
where
    M: prost::Message + Default + 'static,
    N: prost::Message + Default + 'static,
    S: Stream<Item = Result<N, Status>> + Send + 'static,
    F: Future<Output = Result<Response<S>, Status>> + Send + 'static,
{
    async move {
        let mut calls = Grpc::new(ProstCodec::<N, M>::default());
        Ok(calls.server_streaming(once(answer), request).await)
    }
    .boxed()
}

/// Returns a service that answers one request.
fn once<M, R, F>(
    answer: impl FnOnce(Request<M>) -> F + Send + 'static,
) -> impl Service<Request<M>, Response = R, Error = Status, Future = BoxFuture<'static, Result<R, Status>>>
where
    F: Future<Output = Result<R, Status>> + Send + 'static,
    R: 'static,
{
    let mut answer = Some(answer);
    service_fn(move |request| match answer.take() {
        Some(answer) => answer(request).boxed(),
        None => async { Err(Status::internal("a service was called twice")) }.boxed(),
    })
}
