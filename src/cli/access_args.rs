//! Arguments that give access to a cluster.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use forebay::ClusterAccess;

/// Address of the scheduler, unless an argument says otherwise.
pub(crate) const SCHEDULER: &str = "127.0.0.1:7100";

/// Files of the certificates of a process.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct TlsArgs {
    /// Certificate of this process and its chain, in PEM, for the encrypted connections of a
    /// cluster. Also FOREBAY_TLS_CERT
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, in PEM. Also FOREBAY_TLS_KEY
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Certificates of the authorities that sign the certificates of a cluster, in PEM. Schedulers
    /// and workers then accept only processes with a certificate. Also FOREBAY_TLS_CA
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
}

/// Access to a cluster. The variable FOREBAY_CLUSTER_TOKEN holds the secret of the cluster, if it
/// has one.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct SecurityArgs {
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    /// Allow connections between the machines of a cluster that are not encrypted.
    /// Also FOREBAY_CLUSTER_INSECURE=1
    #[arg(long)]
    pub(crate) insecure: bool,
}

impl TlsArgs {
    /// Returns the access that the arguments give.
    pub(crate) fn access(&self) -> ClusterAccess {
        ClusterAccess {
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
            tls_ca: self.tls_ca.clone(),
            ..ClusterAccess::default()
        }
    }
}

impl SecurityArgs {
    /// Returns the access that the arguments give.
    pub(crate) fn access(&self) -> ClusterAccess {
        ClusterAccess {
            insecure: self.insecure,
            ..self.tls.access()
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StatusArgs {
    /// Host and port of the cluster's scheduler
    #[arg(long, value_name = "HOST:PORT", default_value = SCHEDULER)]
    pub(crate) cluster: String,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
}
