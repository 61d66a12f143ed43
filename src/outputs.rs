//! Sources of a session, opened unless they read what is to be written.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use forebay_planner::source::{SourceResolver, SourceSpec};
use forebay_runtime::source::{FileResolver, SourceTable, check_output};

/// Opens sources from files of this machine, except where they read a declared output.
#[derive(Debug, Default)]
pub(crate) struct Outputs(Mutex<Vec<PathBuf>>);

impl Outputs {
    pub(crate) fn declare(&self, path: &Path) {
        let mut outputs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        outputs.push(path.to_path_buf());
    }
}

#[async_trait]
impl SourceResolver for Outputs {
    async fn resolve(&self, spec: &SourceSpec) -> Result<Arc<dyn TableProvider>> {
        let source = FileResolver.open(spec).await?;
        let outputs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for output in outputs.iter() {
            check_output(&*source, output)?;
        }
        Ok(Arc::new(SourceTable::new(source)))
    }
}
