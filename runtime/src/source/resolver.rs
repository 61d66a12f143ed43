//! Opens what the user named.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use forebay_planner::source::{Format, SourceResolver, SourceSpec};

use super::images::ImageFolder;
use super::table::SourceTable;
use super::{Source, avro, csv, ipc, json, parquet};

/// Opens sources from files of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileResolver;

impl FileResolver {
    /// Opens a source: lists its files, reads their columns and row counts.
    pub async fn open(&self, spec: &SourceSpec) -> Result<Arc<dyn Source>> {
        Ok(match spec.format {
            Format::ImageFolder => Arc::new(ImageFolder::open(spec).await?),
            Format::Parquet => Arc::new(parquet::open(spec).await?),
            Format::Csv => Arc::new(csv::open(spec).await?),
            Format::Json => Arc::new(json::open(spec).await?),
            Format::Avro => Arc::new(avro::open(spec).await?),
            Format::Arrow => Arc::new(ipc::open(spec).await?),
        })
    }
}

#[async_trait]
impl SourceResolver for FileResolver {
    async fn resolve(&self, spec: &SourceSpec) -> Result<Arc<dyn TableProvider>> {
        Ok(Arc::new(SourceTable::new(self.open(spec).await?)))
    }
}
