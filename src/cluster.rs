//! Runs on a cluster: workers compute segments, and the client makes batches of them.

use std::sync::Arc;

use forebay_cluster::Cluster;
use forebay_planner::clauses::CacheClause;
use forebay_planner::compile::Compiled;
use forebay_runtime::error::{Error, Result};
use forebay_runtime::run::{RunConfig, SegmentEngine};

/// Returns the engine by which `cluster` computes the segments of a compiled pipeline.
pub(crate) fn engine(
    cluster: &Cluster,
    compiled: &Compiled,
    config: &RunConfig,
) -> Result<Arc<dyn SegmentEngine>> {
    let clauses = &compiled.clauses;
    if clauses.options.cache_dir.is_some() && clauses.cache != Some(CacheClause::Off) {
        return Err(Error::Config(
            "a cache of computed rows is not supported on a cluster yet; write CACHE OFF, or remove \
             cache_dir from OPTIONS"
                .to_owned(),
        ));
    }
    let engine = cluster.engine(compiled, config);
    Ok(Arc::new(engine.map_err(|error| {
        Error::Config(format!("cannot run on a cluster: {error}"))
    })?))
}
