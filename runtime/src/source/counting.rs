//! Sources that count the reads of their splits, for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use forebay_planner::catalog::Catalog;
use forebay_planner::compile::Compiled;
use forebay_planner::source::{SourceResolver, SourceSpec};
use forebay_planner::sql::{Statement, parse};
use futures::stream::BoxStream;

use super::{Access, FileResolver, Manifest, Scan, Source, SourceTable, StoredRows, ValueError};

/// A source that counts the reads of its splits.
#[derive(Debug)]
struct CountedSource {
    inner: Arc<dyn Source>,
    reads: Arc<AtomicUsize>,
}

#[async_trait]
impl Source for CountedSource {
    fn spec(&self) -> &SourceSpec {
        self.inner.spec()
    }

    fn schema(&self) -> &SchemaRef {
        self.inner.schema()
    }

    fn manifest(&self) -> &Arc<Manifest> {
        self.inner.manifest()
    }

    fn access(&self) -> Access {
        self.inner.access()
    }

    fn read_split(
        &self,
        file: usize,
        split: usize,
        scan: &Scan,
    ) -> BoxStream<'static, Result<StoredRows>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.read_split(file, split, scan)
    }

    async fn check_split(&self, file: usize, split: usize) -> Result<()> {
        self.inner.check_split(file, split).await
    }

    async fn fetch(
        &self,
        rows: &[(u32, u64)],
        projection: &[usize],
    ) -> Result<(RecordBatch, Vec<ValueError>)> {
        self.inner.fetch(rows, projection).await
    }
}

/// A resolver that counts the reads of splits, for sources whose location ends with `file`.
#[derive(Debug)]
struct CountingResolver {
    file: String,
    reads: Arc<AtomicUsize>,
}

#[async_trait]
impl SourceResolver for CountingResolver {
    async fn resolve(&self, spec: &SourceSpec) -> Result<Arc<dyn TableProvider>> {
        let table = FileResolver::default().resolve(spec).await?;
        if !spec.location.ends_with(&self.file) {
            return Ok(table);
        }
        let inner = Arc::clone(table.downcast_ref::<SourceTable>().unwrap().source());
        let reads = Arc::clone(&self.reads);
        Ok(Arc::new(SourceTable::new(Arc::new(CountedSource {
            inner,
            reads,
        }))))
    }
}

/// Compiles a query. When the query runs, `reads` counts the reads of splits of the source whose
/// location ends with `file`.
pub(crate) async fn compiled(sql: &str, file: &str, reads: &Arc<AtomicUsize>) -> Compiled {
    let resolver = CountingResolver {
        file: file.to_owned(),
        reads: Arc::clone(reads),
    };
    let catalog = Catalog::new(forebay_udfs::functions(), Arc::new(resolver));
    let Some(Statement::Query(query)) = parse(sql).unwrap().pop() else {
        panic!("{sql}");
    };
    let pipeline = catalog.plan_query(&query).await.unwrap();
    Compiled::new(&pipeline.plan, pipeline.clauses).unwrap()
}
