//! Projection: computes columns, and tracks failed rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

use super::conform::conform;
use super::evaluate::evaluate;
use super::exec::{RowOperator, only};
use super::row_batch::{Reads, RowBatch, RowErrors, SlotError};

/// Computes columns. An image program among the expressions distributes its rows over the compute
/// pool.
#[derive(Debug)]
pub struct Project {
    input: SchemaRef,
    schema: SchemaRef,
    exprs: Vec<Output>,
}

#[derive(Debug)]
struct Output {
    expr: Arc<dyn PhysicalExpr>,
    reads: Reads,
    text: String,
}

impl Project {
    /// Creates a projection from columns `input` to `schema`. Each expression comes with its display text.
    pub fn new(
        input: SchemaRef,
        schema: SchemaRef,
        exprs: Vec<(Arc<dyn PhysicalExpr>, String)>,
    ) -> Self {
        let exprs = exprs.into_iter().map(|(expr, text)| {
            let reads = Reads::of(&expr);
            Output { expr, reads, text }
        });
        Self {
            input,
            schema,
            exprs: exprs.collect(),
        }
    }

    /// Returns the input columns that the projection reads.
    pub fn reads(&self) -> BTreeSet<usize> {
        let reads = self.exprs.iter().flat_map(|output| output.reads.columns());
        reads.collect()
    }
}

impl RowOperator for Project {
    fn name(&self) -> &'static str {
        "ProjectExec"
    }

    fn describe(&self) -> String {
        let named = self
            .schema
            .fields()
            .iter()
            .zip(&self.exprs)
            .map(|(field, output)| {
                if *field.name() == output.text {
                    output.text.clone()
                } else {
                    format!("{} = {}", field.name(), output.text)
                }
            });
        named.collect::<Vec<_>>().join(", ")
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn apply(&self, inputs: Vec<RowBatch>) -> Result<RowBatch> {
        let batch = only(inputs)?;
        let over = batch.for_expressions(&self.input)?;
        let mut columns = Vec::with_capacity(self.exprs.len());
        let mut errors = RowErrors::new();
        // A row for which a predicate failed keeps that error, as it is still unknown whether the
        // row belongs to the output.
        for (&row, row_errors) in &batch.errors {
            let doubts = row_errors
                .iter()
                .filter(|e| e.column.is_none())
                .cloned()
                .collect::<Vec<_>>();
            if !doubts.is_empty() {
                errors.insert(row, doubts);
            }
        }
        for (column, output) in self.exprs.iter().enumerate() {
            let (array, mut failures) = match output.expr.downcast_ref::<Column>() {
                Some(passed) => (Arc::clone(over.column(passed.index())), Default::default()),
                None => {
                    let (array, failures) = evaluate(&output.expr, &over)?;
                    (
                        conform(array, self.schema.field(column).data_type())?,
                        failures,
                    )
                }
            };
            // A slot computed from a failed slot fails with the same error.
            for (&row, row_errors) in &batch.errors {
                if let Some(cause) = output.reads.error(row_errors) {
                    failures.insert(row, (cause.operator.clone(), cause.cause.clone()));
                }
            }
            for (row, (operator, cause)) in failures {
                let error = SlotError {
                    column: Some(column),
                    operator,
                    cause,
                };
                errors.entry(row).or_default().push(error);
            }
            columns.push(array);
        }
        Ok(RowBatch {
            columns,
            rows: batch.rows,
            errors,
        })
    }
}
