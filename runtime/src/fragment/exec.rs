//! The execution plan of a row operator: a function of batches as an `ExecutionPlan`.

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
use futures::TryStreamExt;

use super::row_batch::{RowBatch, hidden_schema};
use crate::cpu::cpu_time;

/// An operation on the rows of a segment.
pub trait RowOperator: fmt::Debug + Send + Sync + 'static {
    /// Returns the name for EXPLAIN; like DataFusion's, it ends in `Exec`.
    fn name(&self) -> &'static str;

    /// Returns the arguments for EXPLAIN.
    fn describe(&self) -> String;

    /// Returns the visible output columns.
    fn schema(&self) -> &SchemaRef;

    /// Applies the operator to a segment's rows, given as one batch per input. It is called on a
    /// thread of the engine's compute pool, so it may use rayon's parallel iterators and must not block on I/O.
    fn apply(&self, inputs: Vec<RowBatch>) -> Result<RowBatch>;
}

/// Returns the only input batch; fails if there is none or more than one.
pub(super) fn only(mut inputs: Vec<RowBatch>) -> Result<RowBatch> {
    match (inputs.pop(), inputs.is_empty()) {
        (Some(batch), true) => Ok(batch),
        _ => internal_err!("an operator with one input has several, or none"),
    }
}

/// Returns the properties shared by all nodes of a fragment: one partition, bounded, in order.
pub(super) fn properties(schema: SchemaRef) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(1),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

/// A [`RowOperator`] over the output of other nodes.
#[derive(Debug)]
pub struct RowExec {
    operator: Arc<dyn RowOperator>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl RowExec {
    /// Creates the node of `operator` above `inputs`.
    pub fn new(operator: Arc<dyn RowOperator>, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Self {
        let properties = properties(hidden_schema(operator.schema()));
        Self {
            operator,
            inputs,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

/// Metrics of a node: output rows, output bytes, wall time and CPU time.
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

    /// Runs and measures the work on one batch.
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
        match self.operator.describe().as_str() {
            "" => write!(f, "{}", self.operator.name()),
            text => write!(f, "{}: {text}", self.operator.name()),
        }
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
        self.inputs.iter().collect()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            operator: Arc::clone(&self.operator),
            inputs,
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
        let inputs = self
            .inputs
            .iter()
            .map(|input| input.execute(partition, Arc::clone(&ctx)))
            .collect::<Result<Vec<_>>>()?;
        let operator = Arc::clone(&self.operator);
        let schema = Arc::clone(self.properties.equivalence_properties().schema());
        let metrics = NodeMetrics::new(&self.metrics, partition);
        let out = Arc::clone(&schema);
        // A segment is bounded, so all of its rows can be held.
        let applied = async move {
            let mut batches = Vec::with_capacity(inputs.len());
            for mut input in inputs {
                while let Some(batch) = input.try_next().await? {
                    batches.push(RowBatch::try_from_batch(&batch)?);
                }
            }
            metrics.measure(|| operator.apply(batches))?.to_batch(&out)
        };
        let stream = futures::stream::once(applied);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
