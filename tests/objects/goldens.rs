//! The corpus of the golden test over S3: the plans, streams, tokens and errors of files.
//!
//! `FOREBAY_OBJECTS=all` runs all pipelines; otherwise some of them run.

use crate::common::parallel::on_threads;
use crate::corpus::{Pipeline, corpus};
use crate::data::Data;
use crate::golden::{Golden, Goldens};
use crate::observe;
use crate::server::{BUCKET, Server};

/// Number of pipelines that run concurrently.
const WORKERS: usize = 4;
/// One of this number of pipelines runs, unless all do.
const SAMPLE: usize = 12;

/// Pipelines whose errors say whether a place is a folder or an object.
const NAME_PLACES: [&str; 2] = ["failures_letters_nowhere", "failures_no_file"];

fn pipelines() -> Vec<Pipeline> {
    let all = std::env::var("FOREBAY_OBJECTS").is_ok_and(|value| value == "all");
    let step = if all { 1 } else { SAMPLE };
    let is_alike = |pipeline: &Pipeline| !NAME_PLACES.contains(&pipeline.name.as_str());
    corpus()
        .into_iter()
        .step_by(step)
        .filter(is_alike)
        .collect()
}

fn recorded(pipelines: &[Pipeline], data: &Data) -> Vec<Golden> {
    let observe = |_: &(), pipeline| observe::observed(pipeline, data);
    on_threads(WORKERS, pipelines, || (), observe)
}

fn equal_to_files(faults: u64) {
    let data = Data::new();
    let server = std::sync::Arc::new(Server::new(&data.dir()));
    server.fail(faults);
    let of_sessions = std::sync::Arc::clone(&server);
    let data = data.served(&format!("s3://{BUCKET}"), move || of_sessions.session());
    let pipelines = pipelines();
    let found = Goldens::new(recorded(&pipelines, &data));
    let seen = server.take();
    let failed = seen.iter().filter(|seen| seen.is_fault).count();
    assert_eq!(failed > 0, faults > 0);
    let differences = found.differences_of_some();
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n\n")
    );
}

#[test]
fn pipelines_over_s3_equal_those_over_files() {
    equal_to_files(0);
}

#[test]
fn pipelines_over_a_failing_s3_equal_those_over_files() {
    equal_to_files(10);
}
