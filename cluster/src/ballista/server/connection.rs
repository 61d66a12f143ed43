//! Connections between the scheduler and workers.

use std::error::Error;
use std::sync::Arc;

use ballista_core::extension::EndpointOverrideFn;
use tonic::transport::Endpoint;

use crate::ballista::connection::Dialer;
use crate::ballista::error::describe;
use crate::ballista::tls::handshake_advice;

/// Number of requests that one connection may have open. Each waiting lease is one.
pub(crate) const MAX_REQUESTS: u32 = 16 << 10;

/// Bytes of a message between the scheduler and a worker: the leases that start at the same time.
pub(crate) const MAX_TASKS: u32 = 256 << 20;

impl Dialer {
    /// Returns the function by which Ballista's own connections are encrypted; `None` if they are
    /// not.
    pub(crate) fn endpoint_override(&self) -> Option<EndpointOverrideFn> {
        self.tls.as_ref()?;
        let dialer = self.clone();
        Some(Arc::new(move |endpoint: Endpoint| {
            let authority = endpoint.uri().authority().map_or("", |at| at.as_str());
            dialer.endpoint(authority).map_err(Into::into)
        }))
    }
}

/// Returns the messages of `error` and of its sources, and what to do about a failed handshake.
pub(crate) fn explain(error: &dyn Error) -> String {
    let message = describe(error);
    match handshake_advice(&message) {
        Some(advice) => format!("{advice} ({message})"),
        None => message,
    }
}
