//! [`RowExec`], an `ExecutionPlan` of DataFusion that applies a row operator to the rows of a
//! segment.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use arrow::datatypes::Schema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::TryStreamExt;

use super::row_batch::{RowBatch, hidden_schema};
use crate::cpu::cpu_time;

/// An operation on the rows of a segment.
pub trait RowOperator: Any + fmt::Debug + Send + Sync {
    /// Returns the operator's name in EXPLAIN. The name ends in `Exec`, like the names of
    /// DataFusion.
    fn name(&self) -> &'static str;

    /// Applies the operator to the rows of a segment. `inputs` holds one batch per input of the
    /// operator. This function is called on a thread of the engine's compute pool, so an
    /// implementation may use rayon's parallel iterators but must not block on I/O.
    fn apply(&self, inputs: Vec<RowBatch>) -> Result<RowBatch>;
}

/// Returns the single batch in `inputs`; fails if `inputs` holds no batch or several batches.
pub(super) fn only(mut inputs: Vec<RowBatch>) -> Result<RowBatch> {
    match (inputs.pop(), inputs.is_empty()) {
        (Some(batch), true) => Ok(batch),
        _ => internal_err!("an operator with one input has several, or none"),
    }
}

/// Plan node that applies a [`RowOperator`] to the output of its input nodes. The output has one
/// partition and is bounded.
#[derive(Debug)]
pub struct RowExec {
    operator: Arc<dyn RowOperator>,
    /// Text that EXPLAIN shows after the operator's name, such as the predicate of a filter.
    text: String,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl RowExec {
    /// Creates a node that applies `operator` to the output of `inputs`. `schema` holds the visible
    /// output columns. EXPLAIN shows `text` after the operator's name.
    pub fn new(
        operator: impl RowOperator,
        text: String,
        schema: &Schema,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(hidden_schema(schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            operator: Arc::new(operator),
            text,
            inputs,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// Returns the node's operator if it is a `T`.
    pub fn operator<T: RowOperator>(&self) -> Option<&T> {
        let operator: &dyn Any = self.operator.as_ref();
        operator.downcast_ref()
    }

    /// Returns a copy of the node with `operator`, `inputs` and empty metrics.
    pub fn with(
        &self,
        operator: Arc<dyn RowOperator>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self {
            operator,
            text: self.text.clone(),
            inputs,
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Applies `operator` to `inputs`, and records output rows, output bytes, wall time and CPU
    /// time in `metrics`.
    fn measured(
        operator: &dyn RowOperator,
        inputs: Vec<RowBatch>,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
    ) -> Result<RowBatch> {
        let (wall, cpu) = (Instant::now(), cpu_time());
        let batch = operator.apply(inputs)?;
        let baseline = BaselineMetrics::new(metrics, partition);
        baseline.elapsed_compute().add_elapsed(wall);
        MetricBuilder::new(metrics)
            .subset_time("cpu", partition)
            .add_duration(cpu_time().saturating_sub(cpu));
        baseline.record_output(batch.len());
        let columns = batch.columns.iter();
        MetricBuilder::new(metrics)
            .counter("bytes", partition)
            .add(columns.map(|c| c.get_buffer_memory_size()).sum());
        Ok(batch)
    }
}

impl DisplayAs for RowExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text.as_str() {
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

    fn with_new_children(
        self: Arc<Self>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.with(Arc::clone(&self.operator), inputs))
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
        let schema = Arc::clone(self.properties.equivalence_properties().schema());
        let out = Arc::clone(&schema);
        let (operator, metrics) = (Arc::clone(&self.operator), self.metrics.clone());
        // The number of rows in a segment is limited, so all of them fit in memory.
        let applied = async move {
            let mut batches = Vec::with_capacity(inputs.len());
            for mut input in inputs {
                while let Some(batch) = input.try_next().await? {
                    batches.push(RowBatch::try_from_batch(&batch)?);
                }
            }
            Self::measured(&*operator, batches, &metrics, partition)?.to_batch(&out)
        };
        let stream = futures::stream::once(applied);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
