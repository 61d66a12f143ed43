//! Union: merges the rows of several inputs into the order of the epoch.

use datafusion::common::Result;

use super::exec::RowOperator;
use super::row_batch::RowBatch;

/// Operator that merges the rows of its inputs by position. A stored row belongs to one input, so
/// no position occurs in two inputs.
#[derive(Debug)]
pub struct Union;

impl RowOperator for Union {
    fn name(&self) -> &'static str {
        "UnionExec"
    }

    fn apply(&self, inputs: Vec<RowBatch>) -> Result<RowBatch> {
        merged(&inputs)
    }
}

/// Merges batches that are each sorted by position. If a position occurs in several batches, the
/// rows of the first of these batches come first.
pub(crate) fn merged(inputs: &[RowBatch]) -> Result<RowBatch> {
    // Inputs without rows in this segment are left out.
    let mut batches: Vec<&RowBatch> = inputs.iter().filter(|b| !b.is_empty()).collect();
    if batches.is_empty() {
        batches.extend(inputs.first());
    }
    if let [only] = batches.as_slice() {
        return Ok((*only).clone());
    }
    let mut order = Vec::new();
    for (input, batch) in batches.iter().enumerate() {
        let positions = batch.row_ids()?.position;
        let rows = positions.values().iter().enumerate();
        order.extend(rows.map(|(row, &at)| (at, input, row)));
    }
    // The sort is stable, so the list elements that UNNEST made of a row keep their order.
    order.sort_by_key(|&(at, input, _)| (at, input));
    let picks: Vec<_> = order.iter().map(|&(_, input, row)| (input, row)).collect();
    RowBatch::interleave(&batches, &picks)
}
