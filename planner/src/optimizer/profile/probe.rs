//! The interface that provides rows for a profile.

use std::fmt;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, SchemaRef};
use datafusion::logical_expr::Expr;
use forebay_udfs::width::fixed_bytes;

use crate::rows::{RowOp, RowPlan};

/// Maximum number of rows of a profile.
pub const ROWS: usize = 64;

/// Provides stored rows of a plan's sources, and evaluates expressions over them.
pub trait Probe: fmt::Debug + Send + Sync {
    /// Returns some stored rows of a scan, with the hidden row column, or `None` if there are none.
    fn sample(&self, occurrence: u32) -> Option<RecordBatch>;

    /// Evaluates an expression over `rows`, or returns `None` if that is not possible here.
    fn evaluate(&self, expr: &Expr, rows: &RecordBatch) -> Option<Evaluated>;

    /// Returns the type of an expression's values, with its extension, or `None` if only evaluation
    /// reveals it.
    fn field(&self, _expr: &Expr, _schema: &SchemaRef) -> Option<Field> {
        None
    }
}

/// Values of an expression.
#[derive(Debug)]
pub struct Evaluated {
    /// The values.
    pub values: ArrayRef,
    /// The type of the values, with its extension.
    pub field: Field,
    /// Indices of the rows that failed, ascending.
    pub failed: Vec<usize>,
}

/// True if the sizes or the number of a plan's rows can only be guessed without a profile: if a
/// column's type does not fix its size, or a predicate filters rows.
pub fn is_guessed(plan: &RowPlan) -> bool {
    let decides = matches!(plan.op, RowOp::Filter { .. });
    let varies = matches!(plan.op, RowOp::Scan { .. })
        && plan
            .schema
            .fields()
            .iter()
            .any(|f| fixed_bytes(f.data_type()).is_none());
    decides || varies || plan.inputs.iter().any(is_guessed)
}
