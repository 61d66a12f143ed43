//! Rows of segments on their way between processes: record batches with the hidden columns, which
//! are checked when they arrive.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::{Result as EngineResult, exec_err};

use super::OpenJob;
use crate::error::Result;
use crate::fragment::row_batch::{RowBatch, hidden_schema};
use crate::segment::SegmentName;

impl OpenJob {
    /// Returns the schema of the record batches that hold a segment's rows: the columns of the
    /// fragment's output, then the hidden columns.
    pub fn segment_schema(&self) -> SchemaRef {
        hidden_schema(self.plan.reader.fragment.schema())
    }

    /// Converts the rows of a segment to record batches.
    ///
    /// # Errors
    /// Fails if the rows do not have the schema of this job's segments.
    pub fn to_batches(&self, rows: &[RowBatch]) -> Result<Vec<RecordBatch>> {
        let schema = self.segment_schema();
        let batches = rows.iter().map(|rows| Ok(rows.to_batch(&schema)?));
        batches.collect()
    }

    /// Converts record batches of `schema` back to the rows of segment `name`. The batches are
    /// untrusted input. `schema` is the [segment schema](Self::segment_schema), or that of a worker
    /// that leaves the last steps to the client.
    ///
    /// # Errors
    /// Fails if the batches cannot be the rows of the segment: they have other columns, rows that
    /// the segment does not have, or rows in another order.
    pub fn received(
        &self,
        schema: &SchemaRef,
        name: &SegmentName,
        batches: &[RecordBatch],
    ) -> Result<Vec<RowBatch>> {
        let (rows, mut last) = (name.rows(), None);
        let mut received = Vec::with_capacity(batches.len());
        for batch in batches {
            if batch.schema_ref().fields() != schema.fields() {
                return Ok(exec_err!(
                    "a worker sent columns other than those of the plan: {:?}, not {:?}",
                    batch.schema_ref().fields(),
                    schema.fields()
                )?);
            }
            let batch = RowBatch::try_from_batch(batch)?;
            self.check_rows(&batch, rows, &mut last)?;
            received.push(batch);
        }
        let sent: usize = received.iter().map(RowBatch::len).sum();
        if name.planned.is_some_and(|planned| planned != sent as u64) {
            return Ok(exec_err!(
                "a worker sent {sent} rows of a segment that has another number"
            )?);
        }
        Ok(received)
    }

    /// Checks that the identities and errors of `batch`, which belongs to a segment of `rows`
    /// stored rows, are in range. `last` is the position of the last row before the batch.
    fn check_rows(&self, batch: &RowBatch, rows: u64, last: &mut Option<u64>) -> EngineResult<()> {
        let ids = batch.row_ids()?;
        let files = self.plan.data.snapshot.files() as u32;
        let multiplies = self.plan.multiplies;
        for row in 0..batch.len() {
            let at = ids.position.value(row);
            let least = last.map_or(0, |last| if multiplies { last } else { last + 1 });
            if at < least || at >= rows {
                return exec_err!(
                    "a worker sent a row that its segment does not have at this place"
                );
            }
            if ids.file.value(row) >= files {
                return exec_err!("a worker sent a row of a file that the data does not have");
            }
            *last = Some(at);
        }
        let columns = batch.columns.len();
        let mut errors = batch.errors.values().flatten();
        if errors.any(|error| error.column.is_some_and(|column| column >= columns)) {
            return exec_err!("a worker sent an error of a column that the plan does not have");
        }
        Ok(())
    }
}
