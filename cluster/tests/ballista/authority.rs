//! An authority that signs the certificates of a test's processes.

use std::path::PathBuf;

use forebay_cluster::ballista::{Security, TlsSettings};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use tempfile::TempDir;

/// Validity of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validity {
    Now,
    Expired,
}

/// An authority with a folder for its files.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("the authority of the cluster")
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Signs a certificate for `host`, and writes `HOST.pem` and `HOST.key`.
    pub(crate) fn sign(&self, host: &str, validity: Validity) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        if validity == Validity::Expired {
            params.not_before = date_time_ymd(2000, 1, 1);
            params.not_after = date_time_ymd(2001, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (cert_file, key_file) = (
            self.file(&format!("{host}.pem")),
            self.file(&format!("{host}.key")),
        );
        std::fs::write(&cert_file, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        (cert_file, key_file)
    }

    /// Returns the access of a process with a certificate for `host` that trusts this authority.
    pub(crate) fn security(&self, host: &str, validity: Validity) -> Security {
        let (cert, key) = self.sign(host, validity);
        let ca = self.file("ca.pem");
        Security {
            tls: TlsSettings::load(Some(&cert), Some(&key), Some(&ca)).unwrap(),
            ..Security::default()
        }
    }

    /// Returns the access of a process without a certificate that trusts this authority.
    pub(crate) fn anonymous(&self) -> Security {
        Security {
            tls: TlsSettings::load(None, None, Some(&self.file("ca.pem"))).unwrap(),
            ..Security::default()
        }
    }
}
