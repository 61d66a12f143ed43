//! Union: the rows of several inputs, merged back into the order of the epoch.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::interleave;
use arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{StreamExt, TryStreamExt};

use super::exec::{NodeMetrics, properties};
use super::row_batch::{RowBatch, RowErrors, hidden_schema};

/// Merges its inputs by position. A stored row belongs to one input, so positions tell them apart.
#[derive(Debug)]
pub struct UnionExec {
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl UnionExec {
    /// A union with visible columns `schema`.
    pub fn new(schema: &Schema, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Self {
        let properties = properties(hidden_schema(schema));
        Self {
            inputs,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

/// Merges batches, each in ascending position, into one.
fn merge(batches: &[RowBatch]) -> Result<RowBatch> {
    if let [only] = batches {
        return Ok(only.clone());
    }
    let mut order = Vec::new();
    for (input, batch) in batches.iter().enumerate() {
        let ids = batch.row_ids()?;
        order.extend(
            ids.position
                .values()
                .iter()
                .enumerate()
                .map(|(row, &at)| (at, input, row)),
        );
    }
    // Stable within an input: the children of a row keep their order.
    order.sort_by_key(|&(at, input, _)| (at, input));
    let picks: Vec<(usize, usize)> = order.iter().map(|&(_, input, row)| (input, row)).collect();
    let pick = |column: &dyn Fn(&RowBatch) -> ArrayRef| -> Result<ArrayRef> {
        let arrays: Vec<ArrayRef> = batches.iter().map(column).collect();
        let arrays: Vec<&dyn Array> = arrays.iter().map(|a| a.as_ref()).collect();
        Ok(interleave(&arrays, &picks)?)
    };
    let width = batches.first().map_or(0, |b| b.columns.len());
    let columns = (0..width)
        .map(|i| pick(&|b| Arc::clone(&b.columns[i])))
        .collect::<Result<_>>()?;
    let mut errors = RowErrors::new();
    for (to, (input, row)) in picks.iter().enumerate() {
        if let Some(of_row) = batches[*input].errors.get(row) {
            errors.insert(to, of_row.clone());
        }
    }
    Ok(RowBatch {
        columns,
        rows: pick(&|b| Arc::clone(&b.rows))?,
        errors,
    })
}

impl DisplayAs for UnionExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnionExec")
    }
}

impl ExecutionPlan for UnionExec {
    fn name(&self) -> &'static str {
        "UnionExec"
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
        let properties = Arc::clone(&self.properties);
        Ok(Arc::new(Self {
            inputs,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep),
        )
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
        let metrics = NodeMetrics::new(&self.metrics, partition);
        let out = Arc::clone(&schema);
        // A segment is bounded, so its rows may be held to be merged.
        let merged = async move {
            let mut batches = Vec::new();
            for input in inputs {
                let of_input: Vec<_> = input.try_collect().await?;
                for batch in &of_input {
                    batches.push(RowBatch::try_from_batch(batch)?);
                }
            }
            batches.retain(|b| !b.is_empty());
            if batches.is_empty() {
                return Ok(arrow::array::RecordBatch::new_empty(out));
            }
            metrics.measure(|| merge(&batches))?.to_batch(&out)
        };
        let stream = futures::stream::once(merged).boxed();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
