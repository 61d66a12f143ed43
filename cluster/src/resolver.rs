//! The resolver that has workers open sources.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use forebay_planner::source::{SourceResolver, SourceSpec};
use forebay_runtime::source::SourceTable;

use crate::client::Cluster;
use crate::location::absolute;
use crate::remote_source::RemoteSource;

/// Opens sources on the workers of a cluster, so that a client plans without access to the data.
/// Paths are those of the workers; relative ones start at the client's folder.
#[derive(Debug, Clone)]
pub struct ClusterResolver(Cluster);

impl ClusterResolver {
    /// Creates the resolver of the data that the workers of `cluster` read.
    pub const fn new(cluster: Cluster) -> Self {
        Self(cluster)
    }
}

#[async_trait]
impl SourceResolver for ClusterResolver {
    async fn resolve(&self, spec: &SourceSpec) -> Result<Arc<dyn TableProvider>> {
        let source = RemoteSource::open(&self.0, spec, &absolute(spec.clone())).await?;
        Ok(Arc::new(SourceTable::new(Arc::new(source))))
    }
}
