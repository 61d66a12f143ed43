//! TLS of a cluster's connections: the certificate of a process, and the authorities it trusts.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::StartError;
use super::error::describe;

/// Time that a peer has for its handshake.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Certificate and key of a process, and the authorities whose certificates it accepts.
#[derive(Clone)]
pub struct TlsSettings {
    pub(super) identity: Option<Identity>,
    pub(super) authorities: Option<Certificate>,
    /// Certificates that servers are verified against.
    roots: Certificate,
}

impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSettings")
            .field("has_identity", &self.identity.is_some())
            .field("is_mutual", &self.authorities.is_some())
            .finish()
    }
}

impl TlsSettings {
    /// Reads the PEM files of a certificate (with its chain), of its key and of authorities.
    /// Returns `None` if no file is given. Without authorities, a server accepts clients without
    /// certificates, and a process trusts the servers that the certificates in `cert` have signed.
    ///
    /// # Errors
    /// Fails if a file cannot be read or holds something else, if only one of `cert` and `key` is
    /// given, or if they do not belong together.
    pub fn load(
        cert: Option<&Path>,
        key: Option<&Path>,
        ca: Option<&Path>,
    ) -> Result<Option<Self>, StartError> {
        // Without a default, rustls panics in a process that has two providers.
        let _ = crypto::ring::default_provider().install_default();
        let identity = match (cert, key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some(read_identity(cert, key)?),
            (Some(_), None) => {
                let message = "--tls-cert needs the certificate's key: add --tls-key";
                return Err(StartError::Option(message.to_owned()));
            }
            (None, Some(_)) => {
                let message = "--tls-key needs the key's certificate: add --tls-cert";
                return Err(StartError::Option(message.to_owned()));
            }
        };
        let authorities = ca.map(read_authorities).transpose()?;
        let chain = identity.as_ref().map(|(chain, _)| chain);
        let Some(roots) = authorities.as_ref().or(chain) else {
            return Ok(None);
        };
        Ok(Some(Self {
            roots: Certificate::from_pem(roots),
            identity: identity.map(|(chain, key)| Identity::from_pem(chain, key)),
            authorities: authorities.map(Certificate::from_pem),
        }))
    }

    /// True if authorities are given.
    pub(crate) fn is_mutual(&self) -> bool {
        self.authorities.is_some()
    }

    /// Returns the settings of a client of `host`.
    pub(crate) fn client(&self, host: &str) -> ClientTlsConfig {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut config = ClientTlsConfig::new()
            .ca_certificate(self.roots.clone())
            .domain_name(host)
            .timeout(HANDSHAKE_TIMEOUT);
        if let Some(identity) = &self.identity {
            config = config.identity(identity.clone());
        }
        config
    }
}

/// Reads a certificate and its key, as PEM.
fn read_identity(cert: &Path, key: &Path) -> Result<(Vec<u8>, Vec<u8>), StartError> {
    let (chain_pem, chain) = read_certificates(cert)?;
    let key_pem = read(key)?;
    let mistake = |what: String| {
        let key = key.display();
        StartError::Option(format!("{key}: {what}; expected a private key in PEM"))
    };
    let parsed = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|e| mistake(describe(&e)))?;
    // It checks that they belong together.
    ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, parsed)
        .map_err(|error| {
            StartError::Option(format!(
                "{} and {} do not fit together: {error}; give the key of this certificate",
                cert.display(),
                key.display()
            ))
        })?;
    Ok((chain_pem, key_pem))
}

/// Reads the certificates of authorities, as PEM.
fn read_authorities(path: &Path) -> Result<Vec<u8>, StartError> {
    let (pem, certificates) = read_certificates(path)?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|error| {
            StartError::Option(format!(
                "{}: {error}; expected certificates of authorities in PEM",
                path.display()
            ))
        })?;
    }
    Ok(pem)
}

fn read_certificates(path: &Path) -> Result<(Vec<u8>, Vec<CertificateDer<'static>>), StartError> {
    let pem = read(path)?;
    let mistake = |what: &str| {
        let path = path.display();
        StartError::Option(format!("{path}: {what}; expected certificates in PEM"))
    };
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| mistake(&describe(&error)))?;
    if certificates.is_empty() {
        return Err(mistake("no certificate"));
    }
    Ok((pem, certificates))
}

fn read(path: &Path) -> Result<Vec<u8>, StartError> {
    std::fs::read(path)
        .map_err(|error| StartError::Option(format!("cannot read {}: {error}", path.display())))
}

/// Returns the cause of a failed handshake in `message`, the text of an error, and what to do.
/// Neither tonic nor h2 keep the error of rustls itself.
pub(crate) fn handshake_advice(message: &str) -> Option<&'static str> {
    // A server's answer to a client that does not encrypt is no HTTP/2, and the other way round.
    const ADVICE: [(&[&str], &str); 10] = [
        (
            &["frame with invalid size"],
            "the other side requires TLS; give --tls-ca, --tls-cert and --tls-key",
        ),
        (
            &[
                "InvalidContentType",
                "received corrupt message",
                "InvalidMessage",
            ],
            "the other side does not speak TLS; start it with --tls-cert, --tls-key and --tls-ca, \
             or connect without them",
        ),
        (
            &[
                "received fatal alert: CertificateExpired",
                "received fatal alert: ExpiredCertificate",
            ],
            "the other side says that the certificate of this process has expired; renew the \
             certificate in --tls-cert",
        ),
        (
            &[
                "certificate expired",
                "Expired",
                "NotValidYet",
                "not valid yet",
            ],
            "the certificate of the other side is not valid at this time; renew it, or set the \
             clock of this machine",
        ),
        (
            // An authority of the same name with another key makes bad signatures.
            &["UnknownIssuer", "BadSignature"],
            "the certificate of the other side was not signed by an authority of --tls-ca; give \
             the authority that signed it",
        ),
        (
            &["NotValidForName", "not valid for name"],
            "the certificate of the other side is for another host; connect to a host that it \
             names, or issue one that names this host",
        ),
        (
            &["CertificateRequired"],
            "the other side requires a certificate; give --tls-cert and --tls-key",
        ),
        (
            &[
                "received fatal alert: UnknownCA",
                "received fatal alert: BadCertificate",
                "received fatal alert: CertificateUnknown",
                "received fatal alert: DecryptError",
            ],
            "the other side does not trust the certificate of this process; give one in \
             --tls-cert that an authority of its --tls-ca has signed",
        ),
        (
            &["invalid peer certificate"],
            "the certificate of the other side is not one that --tls-ca vouches for; check both",
        ),
        (
            &["received fatal alert"],
            "the other side ended the handshake; check the certificates of both sides",
        ),
    ];
    ADVICE
        .iter()
        .find(|(signs, _)| signs.iter().any(|sign| message.contains(sign)))
        .map(|(_, advice)| *advice)
}
