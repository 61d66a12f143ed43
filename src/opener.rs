//! Opens the jobs of a session: in this process, or on the cluster of the session.

use forebay_planner::clauses::Clauses;
use forebay_planner::compile::Compiled;
use forebay_runtime::cache::Stores;
use forebay_runtime::error::Result;
use forebay_runtime::run::{CacheFacts, JobRun, RunConfig, planned_cache};

/// Opens compiled pipelines.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobOpener {
    /// The stores of caches.
    pub(crate) stores: Stores,
    /// The cluster that computes rows; `None` if this process computes them.
    #[cfg(feature = "cluster-client")]
    pub(crate) cluster: Option<crate::Cluster>,
}

impl JobOpener {
    /// Creates an opener whose jobs run in this process, with caches in `stores`.
    pub(crate) const fn new(stores: Stores) -> Self {
        Self {
            stores,
            #[cfg(feature = "cluster-client")]
            cluster: None,
        }
    }

    /// Opens `compiled`.
    ///
    /// # Errors
    /// Fails if the data cannot be read, if `config` does not fit the pipeline, or if the pipeline
    /// cannot be sent to the workers of the cluster.
    pub(crate) async fn open(&self, compiled: &Compiled, config: &RunConfig) -> Result<JobRun> {
        #[cfg(feature = "cluster-client")]
        if let Some(cluster) = &self.cluster {
            let mut config = config.clone();
            let engine = crate::cluster::engine(cluster, compiled, &config).await?;
            config.internals.engine = Some(engine);
            return JobRun::open(compiled, &config, &self.stores).await;
        }
        JobRun::open(compiled, config, &self.stores).await
    }

    /// Returns the facts about the cache of a pipeline on which the choice of its plan depends, as
    /// the process that uses the cache knows them.
    ///
    /// # Errors
    /// Fails if the location that the user named is invalid, or if no worker answers.
    pub(crate) async fn cache_facts(&self, clauses: &Clauses) -> Result<CacheFacts> {
        let Some(dir) = planned_cache(clauses) else {
            return Ok(CacheFacts::default());
        };
        #[cfg(feature = "cluster-client")]
        if let Some(cluster) = &self.cluster {
            return cluster.cache_facts(dir).await;
        }
        CacheFacts::of(dir, &self.stores).await
    }
}
