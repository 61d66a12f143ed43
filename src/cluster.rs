//! Runs on a cluster: workers compute segments, and the client makes batches of them.

use std::sync::Arc;

use forebay_cluster::Cluster;
use forebay_planner::compile::Compiled;
use forebay_runtime::error::{Error, Result};
use forebay_runtime::run::{RunConfig, SegmentEngine, used_cache};

/// Returns the engine by which `cluster` computes the segments of a compiled pipeline.
pub(crate) async fn engine(
    cluster: &Cluster,
    compiled: &Compiled,
    config: &RunConfig,
) -> Result<Arc<dyn SegmentEngine>> {
    let mark = match used_cache(compiled) {
        Some(dir) => Some(cluster.cache_mark(dir).await?),
        None => None,
    };
    let engine = cluster.engine(compiled, config, mark);
    Ok(Arc::new(engine.map_err(|error| {
        Error::Config(format!("cannot run on a cluster: {error}"))
    })?))
}
