//! A source resolver that refuses to read the files that a session declared as outputs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use forebay_planner::source::{SourceResolver, SourceSpec};
use forebay_runtime::source::{SourceTable, check_output};

/// Opens sources by another resolver, except sources that would read a declared output.
#[derive(Debug)]
pub(crate) struct OutputGuard {
    inner: Arc<dyn SourceResolver>,
    outputs: Mutex<Vec<PathBuf>>,
}

impl OutputGuard {
    pub(crate) fn new(inner: Arc<dyn SourceResolver>) -> Self {
        Self {
            inner,
            outputs: Mutex::default(),
        }
    }

    pub(crate) fn declare(&self, path: &Path) {
        let mut outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        outputs.push(path.to_path_buf());
    }
}

#[async_trait]
impl SourceResolver for OutputGuard {
    async fn resolve(&self, spec: &SourceSpec) -> Result<Arc<dyn TableProvider>> {
        let table = self.inner.resolve(spec).await?;
        if let Some(opened) = table.downcast_ref::<SourceTable>() {
            let outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
            for output in outputs.iter() {
                check_output(&**opened.source(), output)?;
            }
        }
        Ok(table)
    }
}
