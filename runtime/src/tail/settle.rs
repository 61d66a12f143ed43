//! Settling of failed rows by the pipeline's policy, in stream order.

use arrow::array::BooleanArray;
use arrow::compute::nullif;
use forebay_planner::clauses::OnError;

use super::failure::Failure;
use crate::error::{Error, Result};
use crate::fragment::row_batch::{RowBatch, SlotError};

/// The rows of a batch that remain under the policy.
#[derive(Debug)]
pub(super) struct Settled {
    /// The rows, with nulls if the policy is `null`.
    pub(super) rows: RowBatch,
    /// Indices of the rows that make the batch. Under `replace` there is one for each row of the
    /// batch; otherwise they are the remaining rows, in order.
    pub(super) picks: Vec<usize>,
    /// Counts of the failed rows by outcome.
    pub(super) fates: Fates,
}

/// Counts of failed rows by outcome.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fates {
    pub(super) skipped: u64,
    pub(super) replaced: u64,
    pub(super) nulled: u64,
}

/// Settles a batch with failed rows. Only the failures of the first `own` rows are counted; the
/// other rows are repeated. `failure` describes a failed row.
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
                // The next good row of the batch, wrapping around at the end.
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
                    let row_errors = rows.errors.get(&row);
                    row_errors.is_some_and(|errors| errors.iter().any(here))
                };
                let mask: BooleanArray = (0..rows.len()).map(|r| Some(failed(r))).collect();
                if mask.true_count() > 0 {
                    let column = &rows.columns[index];
                    rows.columns[index] = nullif(column, &mask).map_err(engine)?;
                }
            }
            // A predicate that failed counts as null, and a null predicate drops the row.
            let kept = |&row: &usize| !rows.errors.get(&row).is_some_and(|e| in_doubt(e));
            all.filter(kept).collect()
        }
    };
    Ok(Settled { rows, picks, fates })
}

/// Returns the outcome of a row with these errors, as recorded in the dead-letter table.
pub(super) fn outcome(on_error: OnError, errors: &[SlotError]) -> &'static str {
    match on_error {
        OnError::Fail => "failed",
        OnError::Skip => "skipped",
        OnError::Replace => "replaced",
        OnError::Null if errors.iter().any(|e| e.column.is_none()) => "skipped",
        OnError::Null => "nulled",
    }
}

/// Returns the error to report for a row: the error of a predicate, or else that of the first
/// column. The choice does not depend on the order in which a plan computes columns.
pub(super) fn reported(errors: &[SlotError]) -> &SlotError {
    errors.iter().min_by_key(|e| e.column).unwrap_or(&errors[0])
}

pub(super) fn engine(error: arrow::error::ArrowError) -> Error {
    Error::Engine(error.into())
}
