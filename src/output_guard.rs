//! A source resolver that refuses to read the files that a session declared as outputs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use forebay_planner::source::{SourceResolver, SourceSpec};
use forebay_runtime::source::{FileResolver, SourceTable, check_output};

/// Opens sources from files of this machine, except sources that would read a declared output.
#[derive(Debug, Default)]
pub(crate) struct OutputGuard(Mutex<Vec<PathBuf>>);

impl OutputGuard {
    pub(crate) fn declare(&self, path: &Path) {
        let mut outputs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        outputs.push(path.to_path_buf());
    }
}

#[async_trait]
impl SourceResolver for OutputGuard {
    async fn resolve(&self, spec: &SourceSpec) -> Result<Arc<dyn TableProvider>> {
        let source = FileResolver.open(spec).await?;
        let outputs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for output in outputs.iter() {
            check_output(&*source, output)?;
        }
        Ok(Arc::new(SourceTable::new(source)))
    }
}
