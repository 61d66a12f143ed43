//! Filter: keeps the rows for which every conjunct is true.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, UInt64Array};
use arrow::compute::{FilterBuilder, prep_null_mask_filter};
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;

use super::evaluate::evaluate;
use super::exec::{RowOperator, only};
use super::row_batch::{Reads, RowBatch, SlotError};

/// Keeps the rows for which every conjunct is true.
///
/// A conjunct that is false or null drops the row, whatever another one did. A conjunct that fails,
/// or reads a slot with an error, leaves the row in doubt: it stays, marked, and its fate is decided
/// where batches are made.
#[derive(Debug)]
pub struct Filter {
    schema: SchemaRef,
    conjuncts: Vec<Conjunct>,
}

#[derive(Debug)]
struct Conjunct {
    expr: Arc<dyn PhysicalExpr>,
    reads: Reads,
    text: String,
}

impl Filter {
    /// A filter over columns `schema`; each conjunct comes with its text for people.
    pub fn new(schema: SchemaRef, conjuncts: Vec<(Arc<dyn PhysicalExpr>, String)>) -> Self {
        let conjuncts = conjuncts.into_iter().map(|(expr, text)| {
            let reads = Reads::of(&expr);
            Conjunct { expr, reads, text }
        });
        Self {
            schema,
            conjuncts: conjuncts.collect(),
        }
    }
}

/// The rows for which `truth` is true, of a batch without errors.
fn keep(batch: RowBatch, truth: &BooleanArray) -> Result<RowBatch> {
    let truth = if truth.null_count() > 0 {
        &prep_null_mask_filter(truth)
    } else {
        truth
    };
    if truth.true_count() == truth.len() {
        return Ok(batch);
    }
    let kept = FilterBuilder::new(truth).optimize().build();
    let columns = batch
        .columns
        .iter()
        .map(|c| kept.filter(c))
        .collect::<Result<_, _>>()?;
    Ok(RowBatch {
        columns,
        rows: kept.filter(&batch.rows)?,
        errors: batch.errors,
    })
}

impl RowOperator for Filter {
    fn name(&self) -> &'static str {
        "FilterExec"
    }

    fn describe(&self) -> String {
        self.conjuncts
            .iter()
            .map(|c| c.text.as_str())
            .collect::<Vec<_>>()
            .join(" AND ")
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn apply(&self, inputs: Vec<RowBatch>) -> Result<RowBatch> {
        let mut batch = only(inputs)?;
        for conjunct in &self.conjuncts {
            let (truth, failures) =
                evaluate(&conjunct.expr, &batch.for_expressions(&self.schema)?)?;
            let truth = truth.as_boolean();
            if failures.is_empty() && batch.errors.is_empty() {
                batch = keep(batch, truth)?;
                continue;
            }
            let mut kept = Vec::with_capacity(batch.len());
            let mut doubts = Vec::new();
            for row in 0..batch.len() {
                // An operator that failed below is named, not the predicate that reads its slot.
                let errors = batch.errors.get(&row);
                let of_slot = errors.and_then(|errors| conjunct.reads.error(errors));
                let of_slot = of_slot.map(|e| (e.operator.clone(), e.cause.clone()));
                if let Some((operator, cause)) = of_slot.or_else(|| failures.get(&row).cloned()) {
                    doubts.push((
                        kept.len(),
                        SlotError {
                            column: None,
                            operator,
                            cause,
                        },
                    ));
                } else if truth.is_null(row) || !truth.value(row) {
                    continue;
                }
                kept.push(row as u64);
            }
            if kept.len() < batch.len() {
                batch = batch.take(&UInt64Array::from(kept))?;
            }
            for (row, doubt) in doubts {
                batch.errors.entry(row).or_default().push(doubt);
            }
            if batch.is_empty() {
                break;
            }
        }
        Ok(batch)
    }
}
