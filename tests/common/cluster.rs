//! Clusters of workers in this process.

use std::sync::Arc;

use forebay::Cluster;
use forebay::forebay_cluster::WindowSettings;
use forebay::forebay_cluster::handler::LeaseHandler;
use forebay::forebay_cluster::in_process::InProcessEngine;
use forebay::forebay_cluster::job_handler::JobHandler;
use forebay::forebay_cluster::jobs::JobSettings;

/// Environment variable that has every run use a cluster of this number of workers.
const WORKERS: &str = "FOREBAY_TEST_WORKERS";

/// Returns an engine with `workers` workers in this process. They have different numbers of threads
/// and different memory limits.
pub(crate) fn engine(workers: usize) -> InProcessEngine {
    let handler = |worker: usize| {
        let settings = JobSettings {
            threads: (worker > 0).then_some(worker),
            memory_limit: (worker > 1).then_some(256 << 20),
            ..JobSettings::default()
        };
        Arc::new(JobHandler::new(settings)) as Arc<dyn LeaseHandler>
    };
    InProcessEngine::new((0..workers).map(handler))
}

/// Returns a cluster with `workers` workers in this process.
pub(crate) fn cluster(workers: usize) -> Cluster {
    Cluster::new(Arc::new(engine(workers)), WindowSettings::default())
}

/// Returns the cluster that the environment asks for.
pub(crate) fn of_environment() -> Option<Cluster> {
    let workers = std::env::var(WORKERS).ok()?;
    Some(cluster(workers.parse().unwrap()))
}
