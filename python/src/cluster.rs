//! A client of a cluster.

use std::path::PathBuf;
use std::sync::Arc;

use forebay::ClusterAccess;
use forebay::forebay_cluster::ballista::BallistaEngine;
use forebay::forebay_cluster::{Cluster as Workers, WindowSettings};
use pyo3::prelude::*;

use crate::error;
use crate::process::OfProcess;
use crate::wait::wait;

/// This process's client of a cluster. It connects when it is first used.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct Cluster {
    client: OfProcess<(BallistaEngine, Workers)>,
}

#[pymethods]
impl Cluster {
    #[new]
    #[pyo3(signature = (address, token, tls_cert, tls_key, tls_ca, insecure))]
    fn new(
        py: Python<'_>,
        address: &str,
        token: Option<String>,
        tls_cert: Option<PathBuf>,
        tls_key: Option<PathBuf>,
        tls_ca: Option<PathBuf>,
        insecure: bool,
    ) -> PyResult<Self> {
        let access = ClusterAccess {
            tls_cert,
            tls_key,
            tls_ca,
            token,
            insecure,
        };
        let engine = access.engine(address);
        let engine = engine.map_err(|error| error::config(py, error.to_string()))?;
        let workers = Workers::new(Arc::new(engine.clone()), WindowSettings::default());
        Ok(Self {
            client: OfProcess::new((engine, workers)),
        })
    }

    /// Returns the status of the cluster, as JSON.
    fn status(&self, py: Python<'_>) -> PyResult<String> {
        let (engine, _) = self.client(py)?;
        let status = wait(py, engine.status())?;
        let status = status.map_err(|error| error::config(py, error.to_string()))?;
        serde_json::to_string(&status).map_err(|error| error::config(py, error.to_string()))
    }
}

impl Cluster {
    /// Returns the cluster, for sessions of this process.
    pub(crate) fn workers(&self, py: Python<'_>) -> PyResult<Workers> {
        Ok(self.client(py)?.1.clone())
    }

    fn client(&self, py: Python<'_>) -> PyResult<&(BallistaEngine, Workers)> {
        let why = "this client of a cluster belongs to the parent process";
        self.client.get().ok_or_else(|| error::config(py, why))
    }
}
