//! Opens the jobs of a session: in this process, or on the cluster of the session.

use forebay_planner::compile::Compiled;
use forebay_runtime::cache::Stores;
use forebay_runtime::error::Result;
use forebay_runtime::run::{JobRun, RunConfig};

/// Opens compiled pipelines.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobOpener {
    /// The object stores that caches may use.
    pub(crate) stores: Stores,
    /// The cluster that computes rows; `None` if this process computes them.
    #[cfg(feature = "cluster-client")]
    pub(crate) cluster: Option<crate::Cluster>,
}

impl JobOpener {
    /// Opens `compiled`.
    ///
    /// # Errors
    /// Fails if the data cannot be read, if `config` does not fit the pipeline, or if the pipeline
    /// cannot be sent to the workers of the cluster.
    pub(crate) async fn open(&self, compiled: &Compiled, config: &RunConfig) -> Result<JobRun> {
        #[cfg(feature = "cluster-client")]
        if let Some(cluster) = &self.cluster {
            let mut config = config.clone();
            let engine = crate::cluster::engine(cluster, compiled, &config)?;
            config.internals.engine = Some(engine);
            return JobRun::open(compiled, &config, &self.stores).await;
        }
        JobRun::open(compiled, config, &self.stores).await
    }
}
