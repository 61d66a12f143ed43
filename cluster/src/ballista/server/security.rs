//! Access to a server: the addresses that may be listened on, its certificate, and the token of
//! requests.

use std::net::SocketAddr;

use tonic::Status;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::{Server, ServerTlsConfig};

use crate::ballista::error::describe;
use crate::ballista::security::{AUTHORIZATION, Credential};
use crate::ballista::tls::HANDSHAKE_TIMEOUT;
use crate::ballista::{Security, StartError, TlsSettings};

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
}

impl TlsSettings {
    /// Returns the settings of a server, which asks for clients' certificates if authorities are
    /// given.
    pub(crate) fn server(&self) -> Result<ServerTlsConfig, StartError> {
        let identity = self.identity.clone().ok_or_else(|| {
            StartError::Option(
                "a server needs a certificate and its key: add --tls-cert and --tls-key".to_owned(),
            )
        })?;
        let mut config = ServerTlsConfig::new()
            .identity(identity)
            .timeout(HANDSHAKE_TIMEOUT);
        if let Some(authorities) = &self.authorities {
            config = config.client_ca_root(authorities.clone());
        }
        Ok(config)
    }
}

impl Credential {
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
}
