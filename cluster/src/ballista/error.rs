//! Errors of starting a scheduler or a worker, and the full messages of errors.

use std::io;
use std::net::SocketAddr;

/// The reason why a scheduler or a worker did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address is not a loopback address, and connections would not be encrypted.
    #[error(
        "refusing to listen on {address} without encryption; give --tls-cert, --tls-key and \
         --tls-ca, listen on a loopback address, or allow it with --insecure"
    )]
    Insecure {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another address or port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// An address that others are told is missing or malformed, or an option is out of range.
    #[error("{0}")]
    Option(String),
    /// Ballista or the system failed.
    #[error("cannot start: {0}")]
    Start(String),
}

/// Returns the messages of `error` and of its sources. Those of tonic hide the reason in a source.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !message.ends_with(&next) {
            message = format!("{message}: {next}");
        }
        source = error.source();
    }
    message
}
