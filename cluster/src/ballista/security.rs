//! Access to the cluster: the shared token, and the addresses that may be listened on.

use std::fmt;
use std::net::SocketAddr;

use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::transport::Server;
use tonic::{Request, Status};

use super::connection::Dialer;
use super::error::describe;
use super::{StartError, TlsSettings};

/// Name of the metadata that carries the token.
const AUTHORIZATION: &str = "authorization";

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
    /// Fails if `address` must not be listened on.
    pub(crate) fn check_address(&self, address: SocketAddr) -> Result<(), StartError> {
        if self.insecure || self.tls.is_some() || address.ip().is_loopback() {
            Ok(())
        } else {
            Err(StartError::Insecure { address })
        }
    }

    /// Returns a server that encrypts its connections if TLS is set.
    pub(crate) fn server(&self) -> Result<Server, StartError> {
        let Some(tls) = &self.tls else {
            return Ok(Server::builder());
        };
        let server = Server::builder().tls_config(tls.server()?);
        server.map_err(|error| StartError::Option(describe(&error)))
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
pub(crate) struct Credential(Option<MetadataValue<Ascii>>);

impl Credential {
    /// Wraps `message` in a request that carries the token.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(value) = &self.0 {
            request.metadata_mut().insert(AUTHORIZATION, value.clone());
        }
        request
    }

    /// Shows that this process has the token. `nonce` is chosen by who asks.
    pub(crate) fn proof(&self, nonce: &str) -> Proof {
        let token = self.0.as_ref().map_or(&b""[..], |value| value.as_bytes());
        Proof(blake3::keyed_hash(
            blake3::hash(token).as_bytes(),
            nonce.as_bytes(),
        ))
    }

    /// Fails if a token is set and the request with `metadata` does not carry it.
    pub(crate) fn check(&self, metadata: &MetadataMap) -> Result<(), Status> {
        self.check_value(metadata.get(AUTHORIZATION).map(MetadataValue::as_bytes))
    }

    /// Fails if a token is set and `given`, the value of the header, is not this token.
    pub(crate) fn check_value(&self, given: Option<&[u8]>) -> Result<(), Status> {
        let Some(expected) = &self.0 else {
            return Ok(());
        };
        let given = given.unwrap_or_default();
        // Hashes are compared in constant time, which comparing the tokens is not.
        if blake3::hash(given) == blake3::hash(expected.as_bytes()) {
            Ok(())
        } else {
            Err(Status::unauthenticated(
                "the token is missing or wrong; set FOREBAY_CLUSTER_TOKEN to the token of the cluster",
            ))
        }
    }
}

/// Shows that a process has the token.
pub(crate) struct Proof(blake3::Hash);

impl Proof {
    /// Returns the bytes of the proof.
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// Returns `true` if `bytes` are this proof. Takes the same time whatever they are.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        <[u8; 32]>::try_from(bytes).is_ok_and(|bytes| self.0 == blake3::Hash::from(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(token: Option<&str>) -> Credential {
        let token = token.map(str::to_owned);
        Security {
            token,
            ..Security::default()
        }
        .credential()
        .unwrap()
    }

    #[test]
    fn tokens_are_compared() {
        let server = credential(Some("right"));
        assert!(
            server
                .check(credential(Some("right")).request(()).metadata())
                .is_ok()
        );
        assert!(
            server
                .check(credential(Some("wrong")).request(()).metadata())
                .is_err()
        );
        assert!(
            server
                .check(credential(None).request(()).metadata())
                .is_err()
        );
        assert!(
            credential(None)
                .check(server.request(()).metadata())
                .is_ok()
        );
    }

    #[test]
    fn proofs_differ_by_token_and_nonce() {
        let proof = credential(Some("right")).proof("nonce");
        assert!(proof.is(credential(Some("right")).proof("nonce").as_bytes()));
        assert!(!proof.is(credential(Some("right")).proof("other").as_bytes()));
        assert!(!proof.is(credential(Some("wrong")).proof("nonce").as_bytes()));
        assert!(!proof.is(credential(None).proof("nonce").as_bytes()));
        assert!(!proof.is(b"short"));
    }

    #[test]
    fn other_machines_need_insecure() {
        let outside: SocketAddr = "0.0.0.0:7000".parse().unwrap();
        let inside: SocketAddr = "127.0.0.3:0".parse().unwrap();
        let strict = Security::default();
        assert!(strict.check_address(inside).is_ok());
        assert!(matches!(
            strict.check_address(outside),
            Err(StartError::Insecure { address }) if address == outside
        ));
        assert!(
            Security {
                insecure: true,
                ..strict
            }
            .check_address(outside)
            .is_ok()
        );
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
