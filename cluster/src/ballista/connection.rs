//! Connections to the scheduler and to workers.

use std::net::IpAddr;
use std::time::Duration;

use tonic::transport::Endpoint;

use super::error::describe;
use super::tls::TlsSettings;

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

/// Bytes of an HTTP/2 frame that a server may send. The default (16 KiB) takes several times as many calls of the system.
const FRAME: u32 = 512 << 10;

/// Returns `host` and `port` as they stand in an address.
pub(crate) fn authority(host: &str, port: u32) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Opens the connections of a process, encrypted if it has TLS settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dialer {
    pub(crate) tls: Option<TlsSettings>,
    /// `true` allows connections to other machines in the clear.
    pub(crate) insecure: bool,
}

impl Dialer {
    /// Returns a connection to `authority` that is still to be opened.
    pub(crate) fn endpoint(&self, authority: &str) -> Result<Endpoint, String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let malformed =
            |cause: String| format!("{authority} is not an address: {cause}; expected HOST:PORT");
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{authority}"))
            .map_err(|error| malformed(describe(&error)))?;
        let host = endpoint.uri().host().unwrap_or_default().to_owned();
        if let Some(tls) = &self.tls {
            endpoint = endpoint
                .tls_config(tls.client(&host))
                .map_err(|error| malformed(describe(&error)))?;
        } else if !self.insecure && !is_loopback(&host) {
            return Err(format!(
                "refusing to connect to {authority} without encryption; give --tls-ca, --tls-cert \
                 and --tls-key, or allow it with --insecure"
            ));
        }
        Ok(endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_stream_window_size(STREAM_WINDOW)
            .max_frame_size(FRAME)
            // Leases that are cancelled reset their streams, and frames that are under way then count as errors. By default,
            // a connection breaks after 1024 of them.
            .http2_max_local_error_reset_streams(None))
    }
}

/// Returns `true` if connections to `host` stay on this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || ip.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities() {
        assert_eq!(authority("127.0.0.1", 7), "127.0.0.1:7");
        assert_eq!(authority("::1", 7), "[::1]:7");
        assert_eq!(authority("[::1]", 7), "[::1]:7");
        let insecure = Dialer {
            insecure: true,
            ..Dialer::default()
        };
        assert!(insecure.endpoint(&authority("worker.example", 7)).is_ok());
        assert!(insecure.endpoint("no address").is_err());
    }

    #[test]
    fn other_machines_are_not_reached_in_the_clear() {
        let dialer = Dialer::default();
        for authority in ["127.0.0.3:7", "localhost:7", "[::1]:7"] {
            assert!(dialer.endpoint(authority).is_ok(), "{authority}");
        }
        for authority in ["worker.example:7", "10.0.0.1:7", "[2001:db8::1]:7"] {
            let refused = dialer.endpoint(authority).unwrap_err();
            assert!(refused.contains("--tls-ca"), "{refused}");
        }
    }
}
