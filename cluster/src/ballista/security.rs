//! Access to the cluster: the shared token, and the addresses that may be listened on.

use std::fmt;
use std::net::SocketAddr;

use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};

use super::connection::{Dialer, is_loopback};
use super::{StartError, TlsSettings};

/// Name of the metadata that carries the token.
pub(crate) const AUTHORIZATION: &str = "authorization";

/// Access rules of a cluster: the secret that its processes share, their certificates, and the
/// addresses they listen on and connect to.
#[derive(Clone, Default)]
pub struct Security {
    /// A secret that all processes of the cluster share. Requests to submit a lease, to store or
    /// read a blob and to fetch a result, those of Ballista's clients and those of the scheduler's
    /// REST service are refused without it. Ballista's services between the scheduler and executors
    /// cannot check it: mutual TLS protects these.
    pub token: Option<String>,
    /// Certificate, key and authorities; `None` does not encrypt connections.
    pub tls: Option<TlsSettings>,
    /// `true` allows to listen on other addresses than those of this machine, and to connect to
    /// other machines, in the clear.
    pub insecure: bool,
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security")
            .field("token", &self.token.as_ref().map(|_| "(secret)"))
            .field("tls", &self.tls)
            .field("insecure", &self.insecure)
            .finish()
    }
}

impl Security {
    /// True if only this machine and processes with a certificate of the cluster's authorities can
    /// send work to a worker that listens on `listen`, and joins the scheduler at `scheduler`.
    pub fn is_closed(&self, listen: SocketAddr, scheduler: &str) -> bool {
        let host = scheduler
            .rsplit_once(':')
            .map_or(scheduler, |(host, _)| host);
        let is_mutual = self.tls.as_ref().is_some_and(TlsSettings::is_mutual);
        is_mutual || listen.ip().is_loopback() && is_loopback(host)
    }

    /// Returns what opens the connections of this process.
    pub(crate) fn dialer(&self) -> Dialer {
        Dialer {
            tls: self.tls.clone(),
            insecure: self.insecure,
        }
    }

    /// Returns the credential that requests carry.
    pub(crate) fn credential(&self) -> Result<Credential, StartError> {
        let Some(token) = &self.token else {
            return Ok(Credential(None));
        };
        let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| {
            StartError::Option(
                "the token contains a character that is not printable ASCII; choose another"
                    .to_owned(),
            )
        })?;
        value.set_sensitive(true);
        Ok(Credential(Some(value)))
    }
}

/// The token, as requests carry it.
#[derive(Debug, Clone)]
pub(crate) struct Credential(pub(super) Option<MetadataValue<Ascii>>);

impl Credential {
    /// Wraps `message` in a request that carries the token.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(value) = &self.0 {
            request.metadata_mut().insert(AUTHORIZATION, value.clone());
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_closed_on_loopback_addresses() {
        let here = SocketAddr::from(([127, 0, 0, 3], 7));
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 7));
        let plain = Security {
            insecure: true,
            token: Some("hush".to_owned()),
            ..Security::default()
        };
        assert!(plain.is_closed(here, "localhost:7100") && plain.is_closed(here, "[::1]:7100"));
        assert!(!plain.is_closed(everywhere, "localhost:7100"));
        assert!(!plain.is_closed(here, "node1:7100"));
    }

    #[test]
    fn tokens_do_not_appear_in_logs() {
        let security = Security {
            token: Some("hush".to_owned()),
            ..Security::default()
        };
        assert!(!format!("{security:?}").contains("hush"));
        assert!(!format!("{:?}", security.credential().unwrap()).contains("hush"));
    }
}
