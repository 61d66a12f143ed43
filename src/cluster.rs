//! Runs on a cluster: workers compute segments, and the client makes batches of them.

use std::sync::Arc;

use forebay_cluster::Cluster;
use forebay_planner::clauses::CacheClause;
use forebay_planner::compile::Compiled;
use forebay_runtime::error::Error as RunError;
use forebay_runtime::run::SegmentEngine;

use crate::error::Result;

/// Returns the engine by which `cluster` computes the segments of a compiled pipeline.
pub(crate) fn engine(cluster: &Cluster, compiled: &Compiled) -> Result<Arc<dyn SegmentEngine>> {
    let clauses = &compiled.clauses;
    if clauses.options.cache_dir.is_some() && clauses.cache != Some(CacheClause::Off) {
        return Err(RunError::Config(
            "a cache of computed rows is not supported on a cluster yet; write CACHE OFF, or remove \
             cache_dir from OPTIONS"
                .to_owned(),
        )
        .into());
    }
    let engine = cluster.engine(compiled);
    Ok(Arc::new(engine.map_err(|error| {
        RunError::Config(format!("cannot run on a cluster: {error}"))
    })?))
}
