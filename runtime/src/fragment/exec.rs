//! The skeleton of a fragment's operators: a function from batch to batch as an `ExecutionPlan`.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, Time,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::StreamExt;

use super::row_batch::{RowBatch, hidden_schema};

/// What an operator does to a batch.
pub trait RowOperator: fmt::Debug + Send + Sync + 'static {
    /// Name for EXPLAIN, `..Exec` by DataFusion's custom.
    fn name(&self) -> &'static str;

    /// Arguments for EXPLAIN.
    fn describe(&self) -> String;

    /// Visible output columns.
    fn schema(&self) -> &SchemaRef;

    /// The operator over one batch. It runs on a thread of the engine's compute pool, so it may use
    /// rayon's parallel iterators, and must not block on I/O.
    fn apply(&self, batch: RowBatch) -> Result<RowBatch>;
}

/// Properties that every node of a fragment has: one partition, bounded, in order.
pub(super) fn properties(schema: SchemaRef) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(1),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

/// Process CPU time, for EXPLAIN ANALYZE.
pub(super) fn cpu_time() -> std::time::Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// A [`RowOperator`] over the output of another node.
#[derive(Debug)]
pub struct RowExec {
    operator: Arc<dyn RowOperator>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl RowExec {
    /// Puts `operator` above `input`.
    pub fn new(operator: Arc<dyn RowOperator>, input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = properties(hidden_schema(operator.schema()));
        Self {
            operator,
            input,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

/// Output rows, output bytes, wall and CPU time of a node.
pub(super) struct NodeMetrics {
    baseline: BaselineMetrics,
    cpu: Time,
    bytes: datafusion::physical_plan::metrics::Count,
}

impl NodeMetrics {
    pub(super) fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        Self {
            baseline: BaselineMetrics::new(metrics, partition),
            cpu: MetricBuilder::new(metrics).subset_time("cpu", partition),
            bytes: MetricBuilder::new(metrics).counter("bytes", partition),
        }
    }

    /// Runs and measures the work of one batch.
    pub(super) fn measure(&self, work: impl FnOnce() -> Result<RowBatch>) -> Result<RowBatch> {
        let (wall, cpu) = (Instant::now(), cpu_time());
        let batch = work()?;
        self.baseline.elapsed_compute().add_elapsed(wall);
        self.cpu.add_duration(cpu_time().saturating_sub(cpu));
        self.baseline.record_output(batch.len());
        self.bytes.add(
            batch
                .columns
                .iter()
                .map(|c| c.get_buffer_memory_size())
                .sum(),
        );
        Ok(batch)
    }
}

impl DisplayAs for RowExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operator.name(), self.operator.describe())
    }
}

impl ExecutionPlan for RowExec {
    fn name(&self) -> &'static str {
        self.operator.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(input) = children.pop().filter(|_| children.is_empty()) else {
            return internal_err!("{} has one input", self.operator.name());
        };
        Ok(Arc::new(Self {
            operator: Arc::clone(&self.operator),
            input,
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let keep = datafusion::physical_plan::ChildrenPropertiesMode::Keep;
        self.replace_children(children, ReplaceChildrenOptions::new(keep))
    }

    fn execute(
        &self,
        partition: usize,
        ctx: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, ctx)?;
        let operator = Arc::clone(&self.operator);
        let schema = Arc::clone(self.properties.equivalence_properties().schema());
        let metrics = NodeMetrics::new(&self.metrics, partition);
        let out = Arc::clone(&schema);
        let stream = input.map(move |batch| {
            let batch = RowBatch::try_from_batch(&batch?)?;
            metrics.measure(|| operator.apply(batch))?.to_batch(&out)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
