//! The catalogue of tables that random pipelines read.

use std::path::Path;
use std::sync::Arc;

use forebay_planner::catalog::{Catalog, Existing};
use forebay_planner::sql::{Statement, parse};
use forebay_runtime::source::FileResolver;

use crate::rows;

/// Writes the data of the random pipelines to `dir`, and returns a catalogue with tables over it.
pub(crate) async fn catalog(dir: &Path) -> Catalog {
    let sql = rows::written(dir);
    let mut catalog = Catalog::new(forebay_udfs::functions(), Arc::new(FileResolver::default()));
    for statement in parse(&sql).unwrap() {
        let refuse = Existing::Refuse;
        match statement {
            Statement::CreateSource { name, spec, .. } => {
                let source = catalog.open_source(&name, spec).await.unwrap();
                catalog.register_source(&name, refuse, source).unwrap();
            }
            Statement::CreatePipeline { name, query, .. } => {
                let planned = catalog.plan_query(&query).await.unwrap();
                catalog
                    .register_pipeline(&name.value, None, refuse, planned)
                    .unwrap();
            }
            other => panic!("{other:?} makes no data"),
        }
    }
    catalog
}
