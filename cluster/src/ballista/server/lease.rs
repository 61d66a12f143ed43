//! The plan of a lease: one operator over one descriptor row.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BinaryArray, ListArray, RecordBatch, StringArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field, UInt64Type};
use arrow::error::ArrowError;
use bytes::Bytes;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err, internal_err};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties,
    ReplaceChildrenOptions, SendableRecordBatchStream,
};

use super::board::LeaseRecord;

/// A lease, as the scheduler and the workers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseDescriptor {
    pub(crate) payload: Bytes,
    pub(crate) affinity: u64,
    pub(crate) order: u64,
    pub(crate) avoid: Vec<String>,
    pub(crate) client: String,
}

impl LeaseDescriptor {
    /// Returns the descriptor as a batch of one row.
    fn to_batch(&self) -> Result<RecordBatch, ArrowError> {
        let avoid = StringArray::from_iter_values(&self.avoid);
        let item = Arc::new(Field::new("item", DataType::Utf8, false));
        let avoid = ListArray::try_new(item, one_row(self.avoid.len())?, Arc::new(avoid), None)?;
        let columns: [(&str, ArrayRef); 5] = [
            (
                "payload",
                Arc::new(BinaryArray::from_iter_values([&self.payload])),
            ),
            (
                "affinity",
                Arc::new(UInt64Array::from_iter_values([self.affinity])),
            ),
            (
                "order",
                Arc::new(UInt64Array::from_iter_values([self.order])),
            ),
            ("avoid", Arc::new(avoid)),
            (
                "client",
                Arc::new(StringArray::from_iter_values([&self.client])),
            ),
        ];
        RecordBatch::try_from_iter_with_nullable(
            columns.map(|(name, column)| (name, column, false)),
        )
    }

    /// Reads the descriptor from a batch of one row.
    fn from_batch(batch: &RecordBatch) -> Option<Self> {
        if batch.num_rows() != 1 {
            return None;
        }
        let number = |name| {
            let column = batch
                .column_by_name(name)?
                .as_primitive_opt::<UInt64Type>()?;
            Some(column.value(0))
        };
        let payload = batch
            .column_by_name("payload")?
            .as_binary_opt::<i32>()?
            .value(0);
        let avoid = batch
            .column_by_name("avoid")?
            .as_list_opt::<i32>()?
            .value(0);
        let avoid = avoid.as_string_opt::<i32>()?;
        let client = batch.column_by_name("client")?.as_string_opt::<i32>()?;
        Some(Self {
            payload: Bytes::copy_from_slice(payload),
            affinity: number("affinity")?,
            order: number("order")?,
            avoid: avoid.iter().flatten().map(str::to_owned).collect(),
            client: client.value(0).to_owned(),
        })
    }
}

/// Returns the offsets of a list column of one row with `length` items.
fn one_row(length: usize) -> Result<arrow::buffer::OffsetBuffer<i32>, ArrowError> {
    i32::try_from(length).map_err(|_| ArrowError::OffsetOverflowError(length))?;
    Ok(arrow::buffer::OffsetBuffer::from_lengths([length]))
}

/// The operator of a lease. It is unary over a memory source, because Ballista gives a custom leaf
/// whole to each task. Workers recognise it and call their handler instead of executing it.
#[derive(Debug)]
pub(crate) struct LeaseExec {
    input: Arc<dyn ExecutionPlan>,
    descriptor: Arc<LeaseDescriptor>,
    /// Progress of the lease; `None` where the plan was decoded from bytes.
    record: Option<Arc<LeaseRecord>>,
}

impl LeaseExec {
    /// Creates the plan of a lease that was submitted.
    pub(crate) fn submitted(descriptor: LeaseDescriptor, record: Arc<LeaseRecord>) -> Result<Self> {
        let batch = descriptor.to_batch()?;
        let schema = batch.schema();
        let input = MemorySourceConfig::try_new_exec(&[vec![batch]], schema, None)?;
        Ok(Self {
            input,
            descriptor: Arc::new(descriptor),
            record: Some(record),
        })
    }

    /// Creates the plan of the lease that the row of `input` describes.
    pub(crate) fn decoded(input: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let descriptor = input
            .downcast_ref::<DataSourceExec>()
            .and_then(|source| source.data_source().downcast_ref::<MemorySourceConfig>())
            .and_then(|source| match source.partitions() {
                [partition] => partition.first(),
                _ => None,
            })
            .and_then(LeaseDescriptor::from_batch)
            .ok_or_else(|| {
                internal_datafusion_err!("a lease needs a memory source of one descriptor row")
            })?;
        Ok(Self {
            input,
            descriptor: Arc::new(descriptor),
            record: None,
        })
    }

    /// Returns the lease.
    pub(crate) fn descriptor(&self) -> &Arc<LeaseDescriptor> {
        &self.descriptor
    }

    /// Returns the progress of the lease in the scheduler.
    pub(crate) fn record(&self) -> Option<&Arc<LeaseRecord>> {
        self.record.as_ref()
    }
}

impl DisplayAs for LeaseExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "LeaseExec: client={}, order={}",
            self.descriptor.client, self.descriptor.order
        )
    }
}

impl ExecutionPlan for LeaseExec {
    fn name(&self) -> &'static str {
        "LeaseExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
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
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[_; 1]>::try_from(children) else {
            return internal_err!("a lease has one input");
        };
        let decoded = Self::decoded(input)?;
        Ok(Arc::new(Self {
            record: self.record.clone(),
            ..decoded
        }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let recompute = datafusion::physical_plan::ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(recompute))
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Err(DataFusionError::Execution(
            "leases run on workers of Forebay, and this executor is not one; start it with \
             `forebay worker`"
                .to_owned(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Schema;

    use super::*;

    #[test]
    fn descriptors_survive_as_batches() {
        for avoid in [vec![], vec!["a".to_owned(), "b".to_owned()]] {
            let descriptor = LeaseDescriptor {
                payload: Bytes::from_static(b"\0payload\xff"),
                affinity: u64::MAX,
                order: 7,
                avoid,
                client: "client".to_owned(),
            };
            let batch = descriptor.to_batch().unwrap();
            assert_eq!(LeaseDescriptor::from_batch(&batch), Some(descriptor));
        }
    }

    #[test]
    fn other_plans_are_no_leases() {
        let schema = Arc::new(Schema::new(vec![Field::new(
            "payload",
            DataType::Binary,
            false,
        )]));
        let empty = MemorySourceConfig::try_new_exec(&[vec![]], schema, None).unwrap();
        assert!(LeaseExec::decoded(empty).is_err());
    }
}
