//! TEMP
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryPool;
use std::sync::Arc;
#[derive(Debug)]
pub struct RowStage {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    rows: usize,
}
impl RowStage {
    pub fn new(schema: SchemaRef, _: &Arc<dyn MemoryPool>) -> Result<Self> {
        Ok(Self {
            schema,
            batches: vec![],
            rows: 0,
        })
    }
    pub fn push(&mut self, b: RecordBatch) -> Result<()> {
        self.rows += b.num_rows();
        self.batches.push(b);
        Ok(())
    }
    pub fn rows(&self) -> usize {
        self.rows
    }
    pub fn gather(&self, i: &[u64]) -> Result<RecordBatch> {
        let all = arrow::compute::concat_batches(&self.schema, &self.batches)?;
        Ok(arrow::compute::take_record_batch(
            &all,
            &arrow::array::UInt64Array::from(i.to_vec()),
        )?)
    }
}
