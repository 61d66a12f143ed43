//! Union: merges the rows of several inputs into the order of the epoch.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::interleave;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;

use super::exec::RowOperator;
use super::row_batch::{RowBatch, RowErrors};

/// Merges its inputs by position. A stored row belongs to one input, so no position occurs in two inputs.
#[derive(Debug)]
pub struct Union {
    /// Visible columns.
    pub schema: SchemaRef,
}

impl RowOperator for Union {
    fn name(&self) -> &'static str {
        "UnionExec"
    }

    fn describe(&self) -> String {
        String::new()
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn apply(&self, inputs: Vec<RowBatch>) -> Result<RowBatch> {
        merged(&inputs)
    }
}

/// Merges batches that are each sorted by position. If a position occurs in several of them, the rows of the first one
/// come first.
pub(crate) fn merged(inputs: &[RowBatch]) -> Result<RowBatch> {
    // Inputs that have no row in this segment are left out.
    let mut batches: Vec<&RowBatch> = inputs.iter().filter(|b| !b.is_empty()).collect();
    if batches.is_empty() {
        batches.extend(inputs.first());
    }
    if let [only] = batches.as_slice() {
        return Ok((*only).clone());
    }
    let mut order = Vec::new();
    for (input, batch) in batches.iter().enumerate() {
        let ids = batch.row_ids()?;
        order.extend(
            ids.position
                .values()
                .iter()
                .enumerate()
                .map(|(row, &at)| (at, input, row)),
        );
    }
    // The sort is stable, so the children of a row keep their order.
    order.sort_by_key(|&(at, input, _)| (at, input));
    let picks: Vec<(usize, usize)> = order.iter().map(|&(_, input, row)| (input, row)).collect();
    let pick = |column: &dyn Fn(&RowBatch) -> ArrayRef| -> Result<ArrayRef> {
        let arrays: Vec<ArrayRef> = batches.iter().map(|b| column(b)).collect();
        let arrays: Vec<&dyn Array> = arrays.iter().map(|a| a.as_ref()).collect();
        Ok(interleave(&arrays, &picks)?)
    };
    let width = batches.first().map_or(0, |b| b.columns.len());
    let columns = (0..width)
        .map(|i| pick(&|b| Arc::clone(&b.columns[i])))
        .collect::<Result<_>>()?;
    let mut errors = RowErrors::new();
    for (to, (input, row)) in picks.iter().enumerate() {
        if let Some(row_errors) = batches[*input].errors.get(row) {
            errors.insert(to, row_errors.clone());
        }
    }
    Ok(RowBatch {
        columns,
        rows: pick(&|b| Arc::clone(&b.rows))?,
        errors,
    })
}
