//! Errors of starting a scheduler or a worker.

use std::io;
use std::net::SocketAddr;

/// The reason why a scheduler or a worker did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address is not a loopback address, and connections would not be encrypted.
    #[error(
        "refusing to listen on {address} in the clear; listen on a loopback address, or allow it \
         with insecure"
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
