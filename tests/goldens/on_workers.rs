//! The corpus on workers of a cluster: the streams, errors and dead letters of one process, with and
//! without caches.

use tokio::runtime::Runtime;

use crate::common::cluster::cluster;
use crate::corpus::corpus;
use crate::data::Data;
use crate::golden::Goldens;
use crate::observe;
use forebay::Session;

/// Environment variable with which all pipelines run, and not only every [`SAMPLE`]th.
const WORKERS: &str = "FOREBAY_GOLDENS_WORKERS";
const SAMPLE: usize = 8;

/// Compares the runs of the corpus on `workers` workers with the goldens.
fn equal_to_one_process(workers: usize) {
    let data = Data::new();
    let location = data.dir().display().to_string();
    let data = data.served(&location, move || Session::on_cluster(cluster(workers)));
    let is_whole = std::env::var(WORKERS).is_ok_and(|value| value == "all");
    let step = if is_whole { 1 } else { SAMPLE };
    // Each number of workers has other pipelines.
    let pipelines = corpus().into_iter().skip(workers % step).step_by(step);
    let runtime = Runtime::new().unwrap();
    let observed = async {
        let mut goldens = Vec::new();
        for pipeline in pipelines {
            goldens.push(observe::observed_by_session(&pipeline, &data).await);
        }
        Goldens::new(goldens)
    };
    let differences = runtime.block_on(observed).differences_of_fields();
    assert!(
        differences.is_empty(),
        "{} differences on {workers} workers:\n{}",
        differences.len(),
        differences.join("\n\n")
    );
}

#[test]
fn one_worker_yields_the_goldens() {
    equal_to_one_process(1);
}

#[test]
fn two_workers_yield_the_goldens() {
    equal_to_one_process(2);
}

#[test]
fn five_workers_yield_the_goldens() {
    equal_to_one_process(5);
}
