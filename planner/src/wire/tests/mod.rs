//! Tests of messages: plans that arrive, plans that are refused, and hostile bytes.

mod exprs;
mod hostile;
mod plans;

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::TableSource;

use super::{PlanMessage, WireError};
use crate::compile::Compiled;
use crate::source::{Format, SourceResolver, SourceSpec};
use crate::testing::{TestResolver, planned};

const MAX_BYTES: usize = 1 << 20;

/// The description of a table of [`planned`], by its columns.
fn spec_of(table: &dyn TableProvider) -> Option<(SourceSpec, String)> {
    let (format, location) = match table.schema().field(0).name().as_str() {
        "image" => (Format::ImageFolder, "p"),
        "id" => (Format::Parquet, "t"),
        _ => return None,
    };
    let spec = SourceSpec {
        format,
        location: location.to_owned(),
        options: [("hive".to_owned(), "yes".to_owned())].into(),
        columns: Some(table.schema()),
    };
    Some((spec, "ab".to_owned()))
}

/// Compiles a pipeline over [`planned`].
async fn compiled(sql: &str) -> Compiled {
    let pipeline = planned(sql).await;
    Compiled::new(&pipeline.keyed().unwrap(), pipeline.clauses).unwrap()
}

fn encoded(compiled: &Compiled) -> Vec<u8> {
    PlanMessage::encode(compiled, &spec_of).unwrap()
}

/// Opens the sources of a message.
async fn opened(message: &PlanMessage) -> Vec<Arc<dyn TableSource>> {
    let mut opened = Vec::new();
    for source in message.sources() {
        let table = TestResolver.resolve(&source.spec).await.unwrap();
        opened.push(provider_as_source(table));
    }
    opened
}

/// Decodes a message, and compiles it over sources that are opened again.
async fn received(bytes: &[u8]) -> Result<Compiled, WireError> {
    let message = PlanMessage::decode(bytes, MAX_BYTES, &[])?;
    let sources = opened(&message).await;
    message.compile(&sources)
}
