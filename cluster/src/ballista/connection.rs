//! Connections to the scheduler and to workers.

use std::error::Error;
use std::time::Duration;

use tonic::transport::Endpoint;

/// Time to open a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval of the pings by which a client notices that the other machine is gone. A process that
/// ends closes its connections, and is noticed at once.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// Time to answer a ping. A busy machine needs longer than an idle one.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes that a server may send ahead of the client, in all and for one result. The defaults of
/// HTTP/2 (64 KiB) make a large result wait for the network's round trips.
const CONNECTION_WINDOW: u32 = 32 << 20;
const STREAM_WINDOW: u32 = 16 << 20;

/// Number of requests that one connection may have open. Each waiting lease is one.
pub(crate) const MAX_REQUESTS: u32 = 16 << 10;

/// Bytes of a message between the scheduler and a worker: the leases that start at the same time.
pub(crate) const MAX_TASKS: u32 = 256 << 20;

/// Returns `host` and `port` as they stand in an address.
pub(crate) fn authority(host: &str, port: u32) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Returns a connection to `authority` that is still to be opened.
pub(crate) fn endpoint(authority: &str) -> Result<Endpoint, String> {
    let endpoint = Endpoint::from_shared(format!("http://{authority}"))
        .map_err(|error| format!("{authority} is not an address: {}", describe(&error)))?;
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW))
}

/// Returns the messages of `error` and of its sources. Those of tonic hide the reason in a source.
pub(crate) fn describe(error: &dyn Error) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities() {
        assert_eq!(authority("127.0.0.1", 7), "127.0.0.1:7");
        assert_eq!(authority("::1", 7), "[::1]:7");
        assert_eq!(authority("[::1]", 7), "[::1]:7");
        assert!(endpoint(&authority("worker.example", 7)).is_ok());
        assert!(endpoint("no address").is_err());
    }
}
