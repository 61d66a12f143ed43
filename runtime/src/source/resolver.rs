//! The resolver that opens sources for the planner.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use forebay_planner::source::{SourceResolver, SourceSpec};

use super::opened::Source;
use super::reader_of;
use super::table::SourceTable;

/// Resolver that opens sources from files of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileResolver;

impl FileResolver {
    /// Opens the source that `spec` describes: lists its files, and reads the columns and row
    /// counts of the files.
    pub async fn open(&self, spec: &SourceSpec) -> Result<Arc<dyn Source>> {
        (reader_of(spec.format).open)(spec).await
    }
}

#[async_trait]
impl SourceResolver for FileResolver {
    async fn resolve(&self, spec: &SourceSpec) -> Result<Arc<dyn TableProvider>> {
        Ok(Arc::new(SourceTable::new(self.open(spec).await?)))
    }
}
