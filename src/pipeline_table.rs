//! A pipeline as a table, for queries `FROM` the pipeline. The table has the rows of one epoch,
//! without BATCH.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use forebay_planner::clauses::{Clauses, PipelineOptions, Repeat};
use forebay_planner::compile::Compiled;
use forebay_runtime::run::RunConfig;
use futures::{StreamExt, stream};

use crate::opener::JobOpener;

/// A table provider over the rows of a pipeline.
#[derive(Debug)]
pub(crate) struct PipelineTable {
    compiled: Arc<Compiled>,
    schema: SchemaRef,
    opener: JobOpener,
}

impl PipelineTable {
    /// Creates the table of a pipeline that was compiled without its BATCH and REPEAT clauses. `opener`
    /// opens it when its rows are read.
    pub(crate) fn new(compiled: Compiled, opener: JobOpener) -> Self {
        let schema = Arc::clone(&compiled.chosen.schema);
        Self {
            compiled: Arc::new(compiled),
            schema,
            opener,
        }
    }
}

#[async_trait]
impl TableProvider for PipelineTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = PipelineRows {
            compiled: Arc::clone(&self.compiled),
            schema: Arc::clone(&self.schema),
            opener: self.opener.clone(),
        };
        Ok(Arc::new(StreamingTableExec::try_new(
            Arc::clone(&self.schema),
            vec![Arc::new(rows)],
            projection,
            [],
            false,
            limit,
        )?))
    }
}

#[derive(Debug)]
struct PipelineRows {
    compiled: Arc<Compiled>,
    schema: SchemaRef,
    opener: JobOpener,
}

impl PartitionStream for PipelineRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (compiled, opener) = (Arc::clone(&self.compiled), self.opener.clone());
        let external = |e: forebay_runtime::error::Error| DataFusionError::External(Box::new(e));
        let run = async move {
            let opened = opener
                .open(&compiled, &RunConfig::default())
                .await
                .map_err(external)?;
            Ok::<_, DataFusionError>(stream::unfold(opened.start(), move |mut run| async move {
                let batch = run.next().await?;
                Some((batch.map(|b| b.batch).map_err(external), run))
            }))
        };
        let rows = stream::once(run).flat_map(|opened| match opened {
            Ok(rows) => rows.boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        });
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            rows,
        ))
    }
}

/// Returns the clauses of a pipeline that also apply in `SELECT .. FROM pipeline`. Such a query
/// reads the rows of one epoch, without BATCH.
pub(crate) fn one_epoch(clauses: Clauses) -> Clauses {
    let Clauses {
        shuffle,
        seed,
        skip,
        take,
        pack: _,
        bucket: _,
        batch: _,
        tokens_of: _,
        pad: _,
        repeat: _,
        cache,
        options,
    } = clauses;
    Clauses {
        shuffle,
        seed,
        skip,
        take,
        repeat: Repeat::default(),
        cache,
        // A query is not a run, so the query records no dead letters.
        options: PipelineOptions {
            dead_letters: None,
            ..options
        },
        ..Clauses::default()
    }
}
