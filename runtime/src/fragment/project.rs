//! Projection: computes the output columns, and records the rows for which an expression fails.

use arrow::datatypes::SchemaRef;
use datafusion::common::Result;

use super::conform::conform;
use super::exec::{RowOperator, only};
use super::row_batch::{RowBatch, RowErrors, SlotError};
use super::row_expr::RowExpr;

/// Operator that computes each output column with an expression. An expression that processes
/// images computes its rows in parallel on the compute pool.
#[derive(Debug)]
pub struct Project {
    /// Visible input columns.
    pub input: SchemaRef,
    /// Visible output columns.
    pub schema: SchemaRef,
    /// The expression of each output column.
    pub exprs: Vec<RowExpr>,
}

impl RowOperator for Project {
    fn name(&self) -> &'static str {
        "ProjectExec"
    }

    fn apply(&self, inputs: Vec<RowBatch>) -> Result<RowBatch> {
        let batch = only(inputs)?;
        let over = batch.for_expressions(&self.input)?;
        let mut columns = Vec::with_capacity(self.exprs.len());
        let mut errors = RowErrors::new();
        // If a predicate raised an error for a row, the row keeps that error, because it is still
        // unknown whether the row belongs to the output.
        for (&row, row_errors) in &batch.errors {
            let doubts = row_errors.iter().filter(|e| e.column.is_none());
            let doubts: Vec<_> = doubts.cloned().collect();
            if !doubts.is_empty() {
                errors.insert(row, doubts);
            }
        }
        for (column, expr) in self.exprs.iter().enumerate() {
            // A slot that is computed from a slot with an error gets the same error.
            let (values, failures) = expr.evaluate(&over, &batch.errors)?;
            for (row, failure) in failures {
                let error = SlotError::of(Some(column), failure);
                errors.entry(row).or_default().push(error);
            }
            columns.push(conform(values, self.schema.field(column).data_type())?);
        }
        Ok(RowBatch {
            columns,
            rows: batch.rows,
            errors,
        })
    }
}
