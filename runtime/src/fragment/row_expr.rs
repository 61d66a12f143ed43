//! Expressions over rows whose slots may hold errors.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;

use super::evaluate::{Failures, columns_read, evaluate};
use super::row_batch::RowErrors;

/// An expression, and the columns that it reads.
#[derive(Debug)]
pub struct RowExpr {
    expr: Arc<dyn PhysicalExpr>,
    /// Indices of the columns that `expr` reads, in the order in which `expr` names them. If a row
    /// has errors in several of these columns, the error of the first column is reported, so that
    /// the report does not depend on the order of columns in a plan.
    reads: Vec<usize>,
}

impl RowExpr {
    /// Creates a row expression from `expr`, and finds the columns that `expr` reads.
    pub fn new(expr: Arc<dyn PhysicalExpr>) -> Self {
        let reads = columns_read(&expr);
        Self { expr, reads }
    }

    /// Iterates over the indices of the columns that the expression reads.
    pub fn reads(&self) -> impl Iterator<Item = usize> {
        self.reads.iter().copied()
    }

    /// Evaluates the expression over the rows of `over`, whose slots have `errors`. If the
    /// expression reads a slot with an error, the row fails with the error of that slot, which is
    /// the cause of the failure.
    pub fn evaluate(&self, over: &RecordBatch, errors: &RowErrors) -> Result<(ArrayRef, Failures)> {
        let (values, mut failures) = evaluate(&self.expr, over)?;
        for (&row, row_errors) in errors {
            let of_slot = |read: usize| row_errors.iter().find(|e| e.column == Some(read));
            if let Some(error) = self.reads().find_map(of_slot) {
                failures.insert(row, (error.operator.clone(), error.cause.clone()));
            }
        }
        Ok((values, failures))
    }
}
