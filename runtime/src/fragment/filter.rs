//! Filter: keeps the rows for which every conjunct is true.

use std::collections::BTreeSet;

use arrow::array::{Array, AsArray, BooleanArray, UInt64Array};
use arrow::compute::FilterBuilder;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;

use super::concat::{has_large_rows, taken};
use super::exec::{RowOperator, only};
use super::row_batch::{RowBatch, SlotError};
use super::row_expr::RowExpr;

/// Keeps the rows for which every conjunct is true.
///
/// A row for which some conjunct is false or null is dropped, even if another conjunct raises an
/// error for the row. Otherwise, if a conjunct raises an error or reads a slot with an error, the
/// row is kept with that error, and the tail of the pipeline settles the row as `on_error` says.
#[derive(Debug)]
pub struct Filter {
    schema: SchemaRef,
    conjuncts: Vec<Conjunct>,
    /// Indices of the columns that the filter or an operator above the filter reads; `None` for
    /// all.
    pub reads: Option<BTreeSet<usize>>,
}

#[derive(Debug)]
struct Conjunct {
    expr: RowExpr,
    /// Indices of the columns that are still read after this conjunct, by later conjuncts or by
    /// operators above the filter; `None` for all.
    left: Option<BTreeSet<usize>>,
}

impl Filter {
    /// Creates a filter with the conjuncts `exprs` over the columns of `schema`. `wanted` holds the
    /// indices of the columns that operators above the filter read; `None` means all columns.
    pub fn new(schema: SchemaRef, exprs: Vec<RowExpr>, wanted: Option<BTreeSet<usize>>) -> Self {
        let mut reads = wanted;
        let mut conjuncts = Vec::with_capacity(exprs.len());
        for expr in exprs.into_iter().rev() {
            let left = reads.clone();
            if let Some(reads) = &mut reads {
                reads.extend(expr.reads());
            }
            conjuncts.push(Conjunct { expr, left });
        }
        conjuncts.reverse();
        Self {
            schema,
            conjuncts,
            reads,
        }
    }
}

/// Keeps the rows of `batch` for which `truth` is true. `batch` must have no errors. `left` holds
/// the columns that are still read. The other columns are only cut to the new number of rows, so
/// their values belong to wrong rows: filtering would copy them, and copying image files would take
/// longer than the predicate.
fn keep(batch: RowBatch, truth: &BooleanArray, left: Option<&BTreeSet<usize>>) -> Result<RowBatch> {
    if truth.true_count() == truth.len() {
        return Ok(batch);
    }
    let kept = FilterBuilder::new(truth).optimize().build();
    let columns = batch.columns.iter().enumerate();
    let is_kept = |row: &usize| truth.is_valid(*row) && truth.value(*row);
    let rows = || (0..truth.len()).filter(is_kept).map(|row| row as u64);
    let columns = columns.map(|(number, column)| match left {
        Some(left) if !left.contains(&number) => Ok(column.slice(0, kept.count())),
        _ if has_large_rows(column) => taken(column, &UInt64Array::from_iter_values(rows())),
        _ => Ok(kept.filter(column)?),
    });
    let columns = columns.collect::<Result<_>>()?;
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

    fn apply(&self, inputs: Vec<RowBatch>) -> Result<RowBatch> {
        let mut batch = only(inputs)?;
        for Conjunct { expr, left } in &self.conjuncts {
            // If the conjunct reads a slot with an error, the error of the slot is reported, not an
            // error of the conjunct.
            let over = batch.for_expressions(&self.schema)?;
            let (truth, mut failures) = expr.evaluate(&over, &batch.errors)?;
            let truth = truth.as_boolean();
            if failures.is_empty() && batch.errors.is_empty() {
                batch = keep(batch, truth, left.as_ref())?;
                continue;
            }
            let mut kept = Vec::with_capacity(batch.len());
            let mut doubts = Vec::new();
            for row in 0..batch.len() {
                match failures.remove(&row) {
                    Some(failure) => doubts.push((kept.len(), SlotError::of(None, failure))),
                    None if truth.is_null(row) || !truth.value(row) => continue,
                    None => {}
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
