//! Golden test: the plans, streams, reports and explanations of a corpus of pipelines must equal
//! the goldens that are checked in under `expected`. A code change that preserves behaviour changes
//! no golden.
//!
//! | variable | meaning |
//! |---|---|
//! | `FOREBAY_GOLDENS=write` | rewrites the goldens; otherwise, the test only compares |
//! | `FOREBAY_GOLDENS_THREADS` | number of compute threads (default 1), irrelevant for goldens |
//! | `FOREBAY_GOLDENS_WORKERS=all` | all pipelines also run on workers, and not only some |
//!
//! `renames.txt` has lines `old => new`, which are applied to the golden texts of EXPLAIN and of refusals before they are
//! compared.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../soundness/case.rs"]
#[allow(dead_code, reason = "pipelines are not made smaller here")]
mod case;
#[path = "../common/mod.rs"]
mod common;
mod corpus;
mod data;
#[path = "../common/draw.rs"]
mod draw;
mod golden;
#[path = "../soundness/images.rs"]
mod images;
mod observe;
mod odd;
#[cfg(feature = "cluster")]
mod on_workers;
mod planning;
mod record;
#[path = "../soundness/rows.rs"]
mod rows;
#[path = "../common/sequences.rs"]
mod sequences;
#[path = "../soundness/values.rs"]
mod values;

use crate::common::parallel::on_threads;
use crate::corpus::{Pipeline, corpus};
use crate::data::Data;
use crate::golden::{Golden, Goldens};

/// Minimum number of pipelines in the corpus. The test fails if pipelines are lost by accident.
const LEAST: usize = 220;
/// Number of pipelines that run concurrently.
const WORKERS: usize = 4;
/// Maximum number of differences reported.
const TOLD: usize = 20;

/// Records all pipelines, several at the same time. Returns their goldens.
fn recorded(corpus: &[Pipeline], data: &Data) -> Vec<Golden> {
    let observe = |_: &(), pipeline| observe::observed(pipeline, data);
    on_threads(WORKERS, corpus, || (), observe)
}

#[test]
fn streams_plans_and_reports_equal_the_goldens() {
    let corpus = corpus();
    assert!(
        corpus.len() >= LEAST,
        "the corpus has {} pipelines, and should have at least {LEAST}",
        corpus.len()
    );
    let data = Data::new();
    let found = Goldens::new(recorded(&corpus, &data));
    if std::env::var("FOREBAY_GOLDENS").is_ok_and(|value| value == "write") {
        found.write();
        println!("wrote the goldens of {} pipelines", corpus.len());
        return;
    }
    let differences = found.differences();
    println!("compared {} pipelines with their goldens", corpus.len());
    let told: Vec<&str> = { differences.iter() }
        .take(TOLD)
        .map(String::as_str)
        .collect();
    assert!(
        differences.is_empty(),
        "{} differences from the goldens; the first {}:\n\n{}\n",
        differences.len(),
        told.len(),
        told.join("\n\n")
    );
}
