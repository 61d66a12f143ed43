//! The interface through which a profile reads rows and evaluates expressions.

use std::fmt;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, SchemaRef};
use datafusion::logical_expr::Expr;
use forebay_udfs::width::fixed_bytes;

use crate::rows::{RowOp, RowPlan};

/// Maximum number of rows over which a plan is profiled.
pub const ROWS: usize = 64;

/// Provides stored rows of a plan's sources, and evaluates expressions over rows.
pub trait Probe: fmt::Debug + Send + Sync {
    /// Returns some stored rows of the scan with the number `occurrence`, with the hidden row
    /// column. `None` if no rows can be read.
    fn sample(&self, occurrence: u32) -> Option<RecordBatch>;

    /// Evaluates `expr` over `rows`; `None` if this probe cannot evaluate `expr`.
    fn evaluate(&self, expr: &Expr, rows: &RecordBatch) -> Option<Evaluated>;

    /// Returns the type of the values of `expr` over `schema`, with the type's Arrow extension.
    /// `None` if the type is known only after evaluation.
    fn field(&self, _expr: &Expr, _schema: &SchemaRef) -> Option<Field> {
        None
    }
}

/// The result of evaluating an expression over rows.
#[derive(Debug)]
pub struct Evaluated {
    /// One value per row. The values of the rows in `failed` are not valid.
    pub values: ArrayRef,
    /// The type of the values, with the type's Arrow extension.
    pub field: Field,
    /// Indices of the rows on which evaluation raised an error, ascending.
    pub failed: Vec<usize>,
}

/// True if, without a profile, the sizes or the number of a plan's rows can only be guessed: the
/// plan has a filter, or reads a column whose type does not fix its size.
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
