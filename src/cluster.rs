//! Runs on a cluster: workers compute segments, and the client makes batches of them.

use std::sync::Arc;

use forebay_cluster::Cluster;
use forebay_planner::compile::Compiled;
use forebay_runtime::error::Error as RunError;
use forebay_runtime::run::SegmentEngine;

use crate::error::Result;

/// Returns the engine by which `cluster` computes the segments of a compiled pipeline.
pub(crate) fn engine(cluster: &Cluster, compiled: &Compiled) -> Result<Arc<dyn SegmentEngine>> {
    if compiled.clauses.options.cache_dir.is_some() {
        return Err(RunError::Config(
            "cache_dir is not supported on a cluster yet; remove it from OPTIONS".to_owned(),
        )
        .into());
    }
    let engine = cluster.engine(compiled);
    Ok(Arc::new(engine.map_err(|error| {
        RunError::Config(format!("cannot run on a cluster: {error}"))
    })?))
}
