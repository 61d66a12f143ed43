//! Filter: keeps the rows for which every conjunct is true.

use std::collections::BTreeSet;
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
/// A conjunct that is false or null drops the row, whatever the other conjuncts yield. A conjunct
/// that fails, or reads a slot with an error, leaves the row in doubt: the row is kept with an
/// error, and the tail settles it.
#[derive(Debug)]
pub struct Filter {
    schema: SchemaRef,
    conjuncts: Vec<Conjunct>,
    wanted: Option<BTreeSet<usize>>,
}

#[derive(Debug)]
struct Conjunct {
    expr: Arc<dyn PhysicalExpr>,
    reads: Reads,
    text: String,
    /// The columns that are read above the filter; `None` for all.
    left: Option<BTreeSet<usize>>,
}

impl Filter {
    /// Creates a filter over the columns of `schema`. Only the columns in `wanted` are read above
    /// the filter (all if `None`). Each conjunct comes with its display text.
    pub fn new(
        schema: SchemaRef,
        conjuncts: Vec<(Arc<dyn PhysicalExpr>, String)>,
        wanted: Option<BTreeSet<usize>>,
    ) -> Self {
        let mut left = wanted.clone();
        let conjuncts = conjuncts.into_iter().rev().map(|(expr, text)| {
            let reads = Reads::of(&expr);
            let after = left.clone();
            if let Some(left) = &mut left {
                left.extend(reads.columns());
            }
            Conjunct {
                expr,
                reads,
                text,
                left: after,
            }
        });
        let mut conjuncts: Vec<Conjunct> = conjuncts.collect();
        conjuncts.reverse();
        Self {
            schema,
            conjuncts,
            wanted,
        }
    }

    /// Returns the columns that the filter or an operator above it reads; `None` for all.
    pub fn reads(&self) -> Option<BTreeSet<usize>> {
        let mut reads = self.wanted.clone()?;
        let by_conjuncts = self.conjuncts.iter().flat_map(|c| c.reads.columns());
        reads.extend(by_conjuncts);
        Some(reads)
    }
}

/// Filters a batch without errors by `truth`. A column that is not in `left` is not read above the
/// filter, so it is truncated instead of filtered, and its values do not match their rows any more:
/// copying image files would take longer than the predicate.
fn keep(batch: RowBatch, truth: &BooleanArray, left: Option<&BTreeSet<usize>>) -> Result<RowBatch> {
    let truth = if truth.null_count() > 0 {
        &prep_null_mask_filter(truth)
    } else {
        truth
    };
    if truth.true_count() == truth.len() {
        return Ok(batch);
    }
    let kept = FilterBuilder::new(truth).optimize().build();
    let columns = batch.columns.iter().enumerate();
    let columns = columns.map(|(number, column)| match left {
        Some(left) if !left.contains(&number) => Ok(column.slice(0, kept.count())),
        _ => kept.filter(column),
    });
    let columns = columns.collect::<Result<_, _>>()?;
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
                batch = keep(batch, truth, conjunct.left.as_ref())?;
                continue;
            }
            let mut kept = Vec::with_capacity(batch.len());
            let mut doubts = Vec::new();
            for row in 0..batch.len() {
                // The operator that failed below the filter is reported, not the predicate that
                // reads its slot.
                let errors = batch.errors.get(&row);
                let slot_error = errors.and_then(|errors| conjunct.reads.error(errors));
                let slot_error = slot_error.map(|e| (e.operator.clone(), e.cause.clone()));
                if let Some((operator, cause)) = slot_error.or_else(|| failures.get(&row).cloned())
                {
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
