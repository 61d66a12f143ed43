//! Clusters of workers in this process.

use std::path::Path;
use std::sync::Arc;

use forebay::forebay_cluster::WindowSettings;
use forebay::forebay_cluster::handler::LeaseHandler;
use forebay::forebay_cluster::in_process::InProcessEngine;
use forebay::forebay_cluster::job_handler::JobHandler;
use forebay::forebay_cluster::jobs::JobSettings;
use forebay::{Cluster, Error, Session};

/// Environment variable that has every run use a cluster of this number of workers.
const WORKERS: &str = "FOREBAY_TEST_WORKERS";

/// Returns an engine with `workers` workers in this process. They have different numbers of threads
/// and different memory limits, and find the files of the first folder of `root` in the second one.
pub(crate) fn engine(workers: usize, root: Option<(&Path, &Path)>) -> InProcessEngine {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let handler = |worker: usize| {
        let settings = JobSettings {
            threads: (worker > 0).then_some(worker),
            memory_limit: (worker > 1).then_some(256 << 20),
            roots: { root.iter() }
                .map(|(theirs, ours)| (text(theirs), text(ours)))
                .collect(),
            ..JobSettings::default()
        };
        Arc::new(JobHandler::new(settings)) as Arc<dyn LeaseHandler>
    };
    InProcessEngine::new((0..workers).map(handler))
}

/// Returns a cluster with `workers` workers in this process.
pub(crate) fn cluster(workers: usize) -> Cluster {
    Cluster::new(Arc::new(engine(workers, None)), WindowSettings::default())
}

/// Returns a session on `cluster` with the pipeline `name` of `session`. Its data is described by the
/// files that `session` opened.
pub(crate) async fn moved(
    session: &Session,
    cluster: Cluster,
    name: &str,
) -> Result<Session, Error> {
    let there = Session::on_cluster(cluster);
    let planned = session.planned(name).await?;
    there.register_planned(name, planned).await?;
    Ok(there)
}

/// Returns the cluster that the environment asks for.
pub(crate) fn of_environment() -> Option<Cluster> {
    let workers = std::env::var(WORKERS).ok()?;
    Some(cluster(workers.parse().unwrap()))
}
