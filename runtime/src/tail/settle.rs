//! Settling the failed rows of a batch by the pipeline's policy, in stream order.

use arrow::array::BooleanArray;
use arrow::compute::nullif;
use forebay_planner::clauses::OnError;

use super::failure::Failure;
use crate::error::{Error, Result};
use crate::fragment::row_batch::{RowBatch, SlotError};

/// Rows of a batch that its policy leaves.
#[derive(Debug)]
pub(super) struct Settled {
    /// The rows, with nulls where the policy puts them.
    pub(super) rows: RowBatch,
    /// Which of them make the batch: in order, or as many as there are, each in its own place or standing in there.
    pub(super) picks: Vec<usize>,
    /// What became of the failed ones.
    pub(super) fates: Fates,
}

/// What became of failed rows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fates {
    pub(super) skipped: u64,
    pub(super) replaced: u64,
    pub(super) nulled: u64,
}

/// Settles a batch with failed rows, of which the first `own` are counted: others come again. `failure` tells of
/// one.
pub(super) fn settle(
    on_error: OnError,
    members: RowBatch,
    own: usize,
    failure: impl Fn(usize, &SlotError) -> Failure,
) -> Result<Settled> {
    let failed = members.errors.range(..own).count() as u64;
    let all = 0..members.len();
    let (mut fates, mut rows) = (Fates::default(), members);
    let good = |rows: &RowBatch, row: usize| !rows.errors.contains_key(&row);
    let picks = match on_error {
        OnError::Fail => match rows.errors.first_key_value() {
            Some((&row, errors)) => {
                return Err(Error::Row(Box::new(failure(row, reported(errors)))));
            }
            None => all.collect(),
        },
        OnError::Skip => {
            fates.skipped = failed;
            all.filter(|&row| good(&rows, row)).collect()
        }
        OnError::Replace => {
            fates.replaced = failed;
            let n = rows.len();
            let mut picks = Vec::with_capacity(n);
            for row in all {
                // The next good row of the batch, from its start again where none follows.
                match (row..n).chain(0..row).find(|&r| good(&rows, r)) {
                    Some(stand_in) => picks.push(stand_in),
                    None => {
                        let mut failure = failure(0, reported(&rows.errors[&0]));
                        failure.cause += &format!(
                            "; every one of the batch's {n} rows failed, so none can stand in"
                        );
                        return Err(Error::Row(Box::new(failure)));
                    }
                }
            }
            picks
        }
        OnError::Null => {
            let in_doubt = |errors: &[SlotError]| errors.iter().any(|e| e.column.is_none());
            let counted = rows.errors.range(..own);
            fates.skipped = { counted }.filter(|(_, e)| in_doubt(e)).count() as u64;
            fates.nulled = failed - fates.skipped;
            for index in 0..rows.columns.len() {
                let failed = |row: usize| {
                    let here = |e: &SlotError| e.column == Some(index);
                    let of_row = rows.errors.get(&row);
                    of_row.is_some_and(|errors| errors.iter().any(here))
                };
                let mask: BooleanArray = (0..rows.len()).map(|r| Some(failed(r))).collect();
                if mask.true_count() > 0 {
                    let column = &rows.columns[index];
                    rows.columns[index] = nullif(column, &mask).map_err(engine)?;
                }
            }
            // A predicate that failed is null, and a null predicate keeps no row.
            let kept = |&row: &usize| !rows.errors.get(&row).is_some_and(|e| in_doubt(e));
            all.filter(kept).collect()
        }
    };
    Ok(Settled { rows, picks, fates })
}

/// What becomes of a row with these errors, as the table of failed rows says it.
pub(super) fn outcome(on_error: OnError, errors: &[SlotError]) -> &'static str {
    match on_error {
        OnError::Fail => "failed",
        OnError::Skip => "skipped",
        OnError::Replace => "replaced",
        OnError::Null if errors.iter().any(|e| e.column.is_none()) => "skipped",
        OnError::Null => "nulled",
    }
}

/// The error of a row that stands for all of them: that of a predicate, else that of the first column.
/// It does not depend on the order in which a plan computes them.
pub(super) fn reported(errors: &[SlotError]) -> &SlotError {
    errors.iter().min_by_key(|e| e.column).unwrap_or(&errors[0])
}

pub(super) fn engine(error: arrow::error::ArrowError) -> Error {
    Error::Engine(error.into())
}
