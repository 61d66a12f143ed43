//! Requests for stored rows, and the rows returned.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::physical_expr::PhysicalExpr;

/// The columns and rows to read of a split.
#[derive(Debug, Clone)]
pub struct Scan {
    /// Indices into the source's schema, ascending.
    pub projection: Vec<usize>,
    /// A predicate over the columns of the source's whole schema. Rows for which it is certainly
    /// not true may be left out (pruning); all others must be returned. `None`: every row is
    /// returned.
    pub prune: Option<Arc<dyn PhysicalExpr>>,
}

/// Rows of a split, with their numbers in the file.
#[derive(Debug, Clone)]
pub struct StoredRows {
    /// The projected columns.
    pub batch: RecordBatch,
    /// Row number in the file of each row of `batch`, ascending.
    pub numbers: Vec<u64>,
}

/// A value that could not be read although the source is otherwise sound (for example, one file of
/// a folder).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueError {
    /// Index of the row in the fetched batch.
    pub row: usize,
    /// Index of the column in the fetched batch.
    pub column: usize,
    /// The reason.
    pub cause: String,
}
