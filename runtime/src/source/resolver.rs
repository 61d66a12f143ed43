//! The resolver that opens sources for the planner.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use forebay_planner::source::{SourceResolver, SourceSpec};

use super::opened::Source;
use super::reader_of;
use super::table::SourceTable;
use crate::objects::ObjectStores;

/// Resolver that opens sources from files of this machine and from object stores.
#[derive(Debug, Clone, Default)]
pub struct FileResolver {
    stores: ObjectStores,
}

impl FileResolver {
    /// Creates a resolver that reads objects from `stores`.
    pub const fn new(stores: ObjectStores) -> Self {
        Self { stores }
    }

    /// Opens the source that `spec` describes: lists its files, and reads the columns and row
    /// counts of the files.
    pub async fn open(&self, spec: &SourceSpec) -> Result<Arc<dyn Source>> {
        (reader_of(spec.format).open)(spec, &self.stores).await
    }
}

#[async_trait]
impl SourceResolver for FileResolver {
    async fn resolve(&self, spec: &SourceSpec) -> Result<Arc<dyn TableProvider>> {
        Ok(Arc::new(SourceTable::new(self.open(spec).await?)))
    }
}
