//! Clients of clusters.

use std::path::PathBuf;
use std::sync::Arc;

use forebay::ClusterAccess;
use forebay::forebay_cluster::ballista::BallistaEngine;
use forebay::forebay_cluster::{Cluster as Workers, WindowSettings};
use pyo3::prelude::*;

use crate::error;
use crate::process::OfProcess;
use crate::ray::engine::RayEngine;
use crate::wait::wait;

/// This process's client of a cluster. It connects when it is first used.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct Cluster {
    client: OfProcess<Client>,
}

#[derive(Debug)]
struct Client {
    workers: Workers,
    /// The engine of the cluster; `None` for actors of Ray.
    ballista: Option<BallistaEngine>,
}

#[pymethods]
impl Cluster {
    #[new]
    #[pyo3(signature = (address, token, tls_cert, tls_key, tls_ca, insecure, compression))]
    #[expect(clippy::too_many_arguments, reason = "one caller, which gives all of them by name")]
    fn new(
        py: Python<'_>,
        address: &str,
        token: Option<String>,
        tls_cert: Option<PathBuf>,
        tls_key: Option<PathBuf>,
        tls_ca: Option<PathBuf>,
        insecure: bool,
        compression: &str,
    ) -> PyResult<Self> {
        let compression = compression.parse();
        let access = ClusterAccess {
            tls_cert,
            tls_key,
            tls_ca,
            token,
            insecure,
            compression: compression.map_err(|why: String| error::config(py, why))?,
        };
        let engine = access.engine(address);
        let engine = engine.map_err(|error| error::config(py, error.to_string()))?;
        let workers = Workers::new(Arc::new(engine.clone()), WindowSettings::default());
        Ok(Self {
            client: OfProcess::new(Client {
                workers,
                ballista: Some(engine),
            }),
        })
    }

    /// Creates the client of actors of Ray.
    #[staticmethod]
    fn of_ray(actors: Py<PyAny>) -> Self {
        let engine = Arc::new(RayEngine::new(actors));
        Self {
            client: OfProcess::new(Client {
                workers: Workers::new(engine, WindowSettings::default()),
                ballista: None,
            }),
        }
    }

    /// Returns the status of the cluster, as JSON.
    fn status(&self, py: Python<'_>) -> PyResult<String> {
        let Some(engine) = &self.client(py)?.ballista else {
            let why = "Ray shows the state of its actors: ray status, ray list actors";
            return Err(error::config(py, why));
        };
        let status = wait(py, engine.status())?;
        let status = status.map_err(|error| error::config(py, error.to_string()))?;
        serde_json::to_string(&status).map_err(|error| error::config(py, error.to_string()))
    }
}

impl Cluster {
    /// Returns the cluster, for sessions of this process.
    pub(crate) fn workers(&self, py: Python<'_>) -> PyResult<Workers> {
        Ok(self.client(py)?.workers.clone())
    }

    fn client(&self, py: Python<'_>) -> PyResult<&Client> {
        let why = "this client of a cluster belongs to the parent process";
        self.client.get().ok_or_else(|| error::config(py, why))
    }
}
