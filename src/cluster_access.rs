//! Access to a cluster: the settings of a program, and for those it leaves out, environment
//! variables.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_cluster::ballista::{BallistaEngine, EngineOptions, Security, StartError, TlsSettings};
use forebay_cluster::{Cluster, WindowSettings};
use forebay_runtime::cache::Compression;

/// Environment variable of [`ClusterAccess::token`].
const TOKEN: &str = "FOREBAY_CLUSTER_TOKEN";

/// Environment variable of [`ClusterAccess::insecure`], if it is neither empty nor `0`.
const INSECURE: &str = "FOREBAY_CLUSTER_INSECURE";

/// Environment variables of the files in [`ClusterAccess`].
const TLS_CERT: &str = "FOREBAY_TLS_CERT";
const TLS_KEY: &str = "FOREBAY_TLS_KEY";
const TLS_CA: &str = "FOREBAY_TLS_CA";

/// Access to a cluster. Each setting that is left out is that of its environment variable, if it has one.
#[derive(Clone, Default)]
pub struct ClusterAccess {
    /// PEM file with the certificate of this process and its chain.
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the private key of `tls_cert`.
    pub tls_key: Option<PathBuf>,
    /// PEM file with the certificates of the authorities of the cluster.
    pub tls_ca: Option<PathBuf>,
    /// Secret that all processes of the cluster share.
    pub token: Option<String>,
    /// `true` allows connections between machines that are not encrypted.
    pub insecure: bool,
    /// Compression of rows on their way from the workers, for networks that are slower than the workers.
    pub compression: Compression,
}

impl std::fmt::Debug for ClusterAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterAccess")
            .field("tls_cert", &self.tls_cert)
            .field("tls_key", &self.tls_key)
            .field("tls_ca", &self.tls_ca)
            .field("token", &self.token.as_ref().map(|_| "(secret)"))
            .field("insecure", &self.insecure)
            .field("compression", &self.compression)
            .finish()
    }
}

impl ClusterAccess {
    /// Reads the files and the environment variables.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or if the files do not fit together.
    pub fn security(&self) -> Result<Security, StartError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let file = |setting: &Option<PathBuf>, name| {
            setting
                .clone()
                .or_else(|| variable(name).map(PathBuf::from))
        };
        let tls = TlsSettings::load(
            file(&self.tls_cert, TLS_CERT).as_deref(),
            file(&self.tls_key, TLS_KEY).as_deref(),
            file(&self.tls_ca, TLS_CA).as_deref(),
        )?;
        let token = self.token.clone().filter(|token| !token.is_empty());
        let of_variable = || variable(TOKEN).and_then(|token| token.into_string().ok());
        Ok(Security {
            token: token.or_else(of_variable),
            tls,
            insecure: self.insecure || variable(INSECURE).is_some_and(|value| value != "0"),
        })
    }

    /// Returns a client of the scheduler at `address`, host and port. It connects when it is first
    /// used.
    ///
    /// # Errors
    /// Fails as [`security`](Self::security), or if the address is malformed.
    pub fn engine(&self, address: &str) -> Result<BallistaEngine, StartError> {
        let mut options = EngineOptions::new(address);
        options.security = self.security()?;
        options.compression = self.compression;
        BallistaEngine::new(&options)
    }

    /// Returns the cluster of the scheduler at `address`, host and port, for
    /// [`Session::on_cluster`](crate::Session::on_cluster).
    ///
    /// # Errors
    /// Fails as [`engine`](Self::engine).
    pub fn connect(&self, address: &str) -> Result<Cluster, StartError> {
        let engine = Arc::new(self.engine(address)?);
        Ok(Cluster::new(engine, WindowSettings::default()))
    }

    /// Returns the files that are set, by their environment variables.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let files = [
            (TLS_CERT, &self.tls_cert),
            (TLS_KEY, &self.tls_key),
            (TLS_CA, &self.tls_ca),
        ];
        files
            .into_iter()
            .filter_map(|(name, file)| Some((name, file.as_deref()?)))
    }
}
