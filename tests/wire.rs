//! Every pipeline of the corpus of goldens is encoded, decoded, compiled over the sources of this
//! machine, and compared with the pipeline that was sent.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "soundness/case.rs"]
#[allow(dead_code, reason = "pipelines are not made smaller here")]
mod case;
mod common;
#[path = "goldens/corpus.rs"]
#[allow(dead_code, reason = "pipelines are not run here")]
mod corpus;
#[path = "goldens/data.rs"]
#[allow(dead_code, reason = "pipelines are not run here")]
mod data;
#[path = "common/draw.rs"]
#[allow(dead_code, reason = "pipelines are not run here")]
mod draw;
#[path = "soundness/images.rs"]
mod images;
#[path = "goldens/odd.rs"]
mod odd;
#[path = "goldens/planning.rs"]
mod planning;
#[path = "soundness/rows.rs"]
mod rows;
#[path = "common/sequences.rs"]
mod sequences;
#[path = "soundness/values.rs"]
mod values;

use std::sync::Arc;

use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::TableSource;
use forebay_planner::compile::Compiled;
use forebay_planner::source::SourceResolver;
use forebay_planner::wire::{PlanMessage, WireError};
use forebay_runtime::source::{FileResolver, SourceTable};
use tokio::runtime::Runtime;

use crate::common::parallel::{cores, on_threads};
use crate::corpus::{Pipeline, corpus};
use crate::data::Data;
use crate::planning::{compiled, session};

/// Minimum number of pipelines that are sent. The other pipelines of the corpus are refused by the
/// planner.
const LEAST: usize = 200;
/// Maximum size of a message, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Sends a compiled pipeline, and compiles what arrives over sources that are opened again.
async fn sent(compiled: &Compiled) -> Result<Compiled, WireError> {
    let bytes = PlanMessage::encode(compiled, &SourceTable::describe)?;
    let message = PlanMessage::decode(&bytes, MAX_BYTES, &[])?;
    let mut sources: Vec<Arc<dyn TableSource>> = Vec::new();
    for source in message.sources() {
        let table = FileResolver::default().resolve(&source.spec).await.unwrap();
        sources.push(provider_as_source(table));
    }
    message.compile(&sources)
}

/// Returns the differences between a pipeline and what arrives when it is sent; `None` if the
/// planner refuses the pipeline.
async fn differences(pipeline: &Pipeline, data: &Data) -> Option<Vec<String>> {
    let session = session(pipeline, data).await.ok()?;
    let compiled = compiled(&session, &pipeline.name).await.ok()?;
    let found = match sent(&compiled).await {
        Ok(found) => found,
        Err(error) => return Some(vec![error.to_string()]),
    };
    let facts = |of: &Compiled| {
        [
            of.semantic_hash.to_string(),
            of.plan_hash().unwrap(),
            of.written.to_string(),
            of.chosen.to_string(),
            format!("{:?}", of.clauses),
        ]
    };
    let facts = facts(&compiled).into_iter().zip(facts(&found));
    let differing = facts.filter(|(sent, found)| sent != found);
    Some(
        differing
            .map(|(sent, found)| format!("{sent}\nbut found\n{found}"))
            .collect(),
    )
}

#[test]
fn every_pipeline_of_the_corpus_arrives_as_it_was_sent() {
    let (corpus, data) = (corpus(), Data::new());
    let check = |runtime: &Runtime, pipeline| runtime.block_on(differences(pipeline, &data));
    let runtime = || Runtime::new().unwrap();
    let results = on_threads(cores(), &corpus, runtime, check);
    let (mut sent, mut failed) = (0, Vec::new());
    for (pipeline, differences) in corpus.iter().zip(results) {
        let Some(differences) = differences else {
            continue;
        };
        sent += 1;
        if !differences.is_empty() {
            failed.push(format!("{}: {}", pipeline.name, differences.join("\n")));
        }
    }
    println!("sent {sent} pipelines");
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed.join("\n\n")
    );
    assert!(sent >= LEAST, "only {sent} pipelines were sent");
}
