//! The leaf of a fragment: the stored rows of a segment, with their identities.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
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

use super::exec::{NodeMetrics, properties};
use super::row_batch::{RowBatch, hidden_schema};

/// Name of the leaf that stands for cached rows.
pub const CACHE_LEAF: &str = "CacheExec";

/// The origin of a leaf's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leaf {
    /// The scan with this occurrence.
    Scan(u32),
    /// The cache point, whose rows are read from the cache or computed by the cached prefix.
    Cache,
}

/// A leaf that passes a segment's rows to the fragment. Until [`bind`](Self::bind) gives it rows,
/// it is a template.
#[derive(Debug)]
pub struct SegmentScanExec {
    leaf: Leaf,
    text: String,
    rows: Option<RowBatch>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SegmentScanExec {
    /// Creates the template of a leaf with visible columns `schema`; `text` is shown by EXPLAIN.
    pub fn new(leaf: Leaf, schema: &Schema, text: String) -> Self {
        Self {
            leaf,
            text,
            rows: None,
            properties: properties(hidden_schema(schema)),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// Returns the origin of the leaf's rows.
    pub fn leaf(&self) -> Leaf {
        self.leaf
    }

    /// Returns a copy of the leaf, bound to these rows.
    pub fn bind(&self, rows: RowBatch) -> Self {
        Self {
            leaf: self.leaf,
            text: self.text.clone(),
            rows: Some(rows),
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl DisplayAs for SegmentScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.text)
    }
}

impl ExecutionPlan for SegmentScanExec {
    fn name(&self) -> &'static str {
        match self.leaf {
            Leaf::Scan(_) => "SegmentScanExec",
            Leaf::Cache => CACHE_LEAF,
        }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
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

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = Arc::clone(self.properties.equivalence_properties().schema());
        let metrics = NodeMetrics::new(&self.metrics, partition);
        let batches: Vec<Result<RecordBatch>> = match &self.rows {
            Some(rows) => vec![metrics.measure(|| rows.cleared())?.to_batch(&schema)],
            None => Vec::new(),
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            schema,
            futures::stream::iter(batches),
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
