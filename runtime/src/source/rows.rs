//! Requests for stored rows of a source, and the rows that the source returns.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::{filter_record_batch, prep_null_mask_filter};
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use serde::{Deserialize, Serialize};

use crate::fragment::unwind::caught;

/// Request to read a split: the columns to read, and the rows that may be left out.
#[derive(Debug, Clone)]
pub struct Scan {
    /// Indices of the columns to read in the source's schema, ascending.
    pub projection: Vec<usize>,
    /// A predicate over the columns of the source's whole schema. Rows for which the predicate is
    /// certainly not true may be left out (pruning); all other rows must be returned. With `None`,
    /// every row is returned.
    pub prune: Option<Arc<dyn PhysicalExpr>>,
    /// A predicate over the projected columns. Rows for which it is not true may be dropped once they are
    /// read; none are if it fails. The caller filters the rows that are left.
    pub keep: Option<Arc<dyn PhysicalExpr>>,
}

/// Rows of a split, with their row numbers in the file.
#[derive(Debug, Clone)]
pub struct StoredRows {
    /// The rows, with the projected columns.
    pub batch: RecordBatch,
    /// Row number in the file of each row of `batch`, ascending.
    pub numbers: Vec<u64>,
}

impl StoredRows {
    /// Drops the rows for which `keep` is not true. If it raises an error for some row, all rows are
    /// kept, and the filter above the scan reports the error.
    pub(crate) fn kept(self, keep: &Arc<dyn PhysicalExpr>) -> Result<Self> {
        let rows = self.numbers.len();
        if rows == 0 {
            return Ok(self);
        }
        let truth = caught(|| keep.evaluate(&self.batch)?.into_array(rows));
        let Ok(Ok(truth)) = truth else {
            return Ok(self);
        };
        let truth = match truth.as_boolean() {
            truth if truth.null_count() > 0 => prep_null_mask_filter(truth),
            truth => truth.clone(),
        };
        if truth.true_count() == rows {
            return Ok(self);
        }
        let batch = filter_record_batch(&self.batch, &truth)?;
        let kept = truth.values().set_indices();
        let numbers = kept.map(|i| self.numbers[i]).collect();
        Ok(Self { batch, numbers })
    }
}

/// A value of a row that could not be read, for example one image file of a folder. Other values
/// are not affected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueError {
    /// Index of the row in the fetched batch.
    pub row: usize,
    /// Index of the column in the fetched batch.
    pub column: usize,
    /// The reason.
    pub cause: String,
}
