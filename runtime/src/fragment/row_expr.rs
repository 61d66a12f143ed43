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
    /// The columns, in the order in which the expression names them. If several of them have an error in a row, the
    /// error of the first one counts, so that it does not depend on the position of columns in a plan.
    reads: Vec<usize>,
}

impl RowExpr {
    /// Finds the columns that an expression reads.
    pub fn new(expr: Arc<dyn PhysicalExpr>) -> Self {
        let reads = columns_read(&expr);
        Self { expr, reads }
    }

    /// Iterates over the columns that the expression reads.
    pub fn reads(&self) -> impl Iterator<Item = usize> {
        self.reads.iter().copied()
    }

    /// Evaluates the expression over rows with these errors. A row fails with the error of a slot that it reads, if
    /// there is one, because that error is the cause of its own.
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
