//! The worker's front for tasks: passes them from the worker's port on to its executor.
//!
//! Ballista's executor cannot encrypt its port, so the executor listens on a loopback address.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::transport::{Channel, Endpoint};
use tower::ServiceExt;

use crate::ballista::connection::CONNECT_TIMEOUT;
use crate::ballista::error::describe;
use crate::ballista::lock::lock;

/// Passes the calls of the scheduler on to the executor that runs now.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskFront(Arc<Mutex<Option<Channel>>>);

impl TaskFront {
    /// Passes calls on to the executor on `port` of this machine from now on; `None` to none.
    pub(crate) fn set(&self, port: Option<u16>) {
        let channel = port.and_then(|port| {
            let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).ok()?;
            let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true);
            Some(endpoint.connect_lazy())
        });
        *lock(&self.0) = channel;
    }
}

impl NamedService for TaskFront {
    const NAME: &'static str = "ballista.protobuf.ExecutorGrpc";
}

impl Service<http::Request<Body>> for TaskFront {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let channel = lock(&self.0).clone();
        async move {
            let Some(channel) = channel else {
                let status = Status::unavailable("no executor runs here now");
                return Ok(status.into_http());
            };
            let answer = channel.oneshot(request).await;
            Ok(answer.unwrap_or_else(|e| Status::unavailable(describe(&e)).into_http()))
        }
        .boxed()
    }
}
