//! Requests for stored rows of a source, and the rows that the source returns.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::physical_expr::PhysicalExpr;
use serde::{Deserialize, Serialize};

/// Request to read a split: the columns to read, and the rows that may be left out.
#[derive(Debug, Clone)]
pub struct Scan {
    /// Indices of the columns to read in the source's schema, ascending.
    pub projection: Vec<usize>,
    /// A predicate over the columns of the source's whole schema. Rows for which the predicate is
    /// certainly not true may be left out (pruning); all other rows must be returned. With `None`,
    /// every row is returned.
    pub prune: Option<Arc<dyn PhysicalExpr>>,
}

/// Rows of a split, with their row numbers in the file.
#[derive(Debug, Clone)]
pub struct StoredRows {
    /// The rows, with the projected columns.
    pub batch: RecordBatch,
    /// Row number in the file of each row of `batch`, ascending.
    pub numbers: Vec<u64>,
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
