//! Settling of failed rows by the pipeline's policy, in stream order.

use arrow::array::{BooleanArray, UInt64Array};
use arrow::compute::nullif;
use forebay_planner::clauses::OnError;

use super::failure::{Failure, RunStats};
use super::pack;
use crate::error::{Error, Result};
use crate::fragment::row_batch::{RowBatch, SlotError};

/// Settles the failed rows of the batch `rows` by the policy `on_error`. Returns the indices of the
/// rows that make up the settled batch: under `replace`, one index for each row of the batch;
/// otherwise, the remaining rows in order.
///
/// Only failures among the first `own` rows are counted in `stats`; the other rows repeat rows that
/// were counted already.
///
/// # Errors
/// Fails with `first`, the first failed row, if the policy is `fail`, or if the policy is `replace`
/// and all rows failed.
pub(super) fn settle(
    on_error: OnError,
    rows: &mut RowBatch,
    own: usize,
    first: &Failure,
    stats: &mut RunStats,
) -> Result<Vec<usize>> {
    let failed = rows.errors.range(..own).count() as u64;
    let all = 0..rows.len();
    let is_good = |row: &usize| !rows.errors.contains_key(row);
    match on_error {
        OnError::Fail => Err(Error::Row(Box::new(first.clone()))),
        OnError::Skip => {
            stats.skipped += failed;
            Ok(all.filter(is_good).collect())
        }
        OnError::Replace => {
            let n = rows.len();
            // The next row without an error, wrapping around at the end of the batch.
            let stand_in = |row: usize| (row..n).chain(0..row).find(is_good);
            let Some(picks) = all.map(stand_in).collect() else {
                let mut failure = first.clone();
                failure.cause +=
                    &format!("; every one of the batch's {n} rows failed, so none can stand in");
                return Err(Error::Row(Box::new(failure)));
            };
            stats.replaced += failed;
            Ok(picks)
        }
        OnError::Null => {
            let counted = rows.errors.range(..own);
            let skipped = counted.filter(|(_, e)| in_doubt(e)).count() as u64;
            stats.skipped += skipped;
            stats.nulled += failed - skipped;
            for (index, column) in rows.columns.iter_mut().enumerate() {
                let failed = |row: usize| {
                    let here = |e: &SlotError| e.column == Some(index);
                    let row_errors = rows.errors.get(&row);
                    row_errors.is_some_and(|errors| errors.iter().any(here))
                };
                let mask: BooleanArray = all.clone().map(|row| Some(failed(row))).collect();
                if mask.true_count() > 0 {
                    *column = nullif(column, &mask)?;
                }
            }
            // A predicate that raised an error counts as null, and a null predicate drops the row.
            let kept = |row: &usize| !rows.errors.get(row).is_some_and(|e| in_doubt(e));
            Ok(all.filter(kept).collect())
        }
    }
}

/// Returns true if a predicate raised an error, so it is unknown whether the row belongs to the
/// output.
fn in_doubt(errors: &[SlotError]) -> bool {
    errors.iter().any(|error| error.column.is_none())
}

/// Returns the outcome of a row with the errors `errors`, as the dead-letter table records it.
pub(super) fn outcome(on_error: OnError, errors: &[SlotError]) -> &'static str {
    match on_error {
        OnError::Fail => "failed",
        OnError::Skip => "skipped",
        OnError::Replace => "replaced",
        OnError::Null if in_doubt(errors) => "skipped",
        OnError::Null => "nulled",
    }
}

/// Returns the error to report for a row: the error of a predicate if there is one, otherwise the
/// error of the first failed column. The choice does not depend on the order in which a plan
/// computes columns.
pub(super) fn reported(errors: &[SlotError]) -> &SlotError {
    errors.iter().min_by_key(|e| e.column).unwrap_or(&errors[0])
}

/// The rows of a settled batch, and their division into packs.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) members: RowBatch,
    /// Number of rows in each pack, if rows are packed.
    pub(super) packs: Option<Vec<u32>>,
    /// Number of rows (or packs) at the end of the batch that only repeat other rows (or packs).
    pub(super) padded: usize,
    /// The first failed row, if any.
    failure: Option<Failure>,
}

impl Made {
    /// Creates a batch without failed rows. Only the first `own` rows of `members` are new; the
    /// other rows are repeated.
    pub(super) fn whole(members: RowBatch, packs: Option<Vec<u32>>, own: usize) -> Self {
        let padded = padded(members.len(), own, packs.as_deref());
        Self {
            members,
            packs,
            padded,
            failure: None,
        }
    }

    /// Creates the batch of the rows of `members` at the indices `picks`: those that remain after
    /// failed rows were dropped or replaced. `first` is the first failure.
    pub(super) fn settled(
        members: &RowBatch,
        picks: &[usize],
        packs: Option<Vec<u32>>,
        own: usize,
        first: Failure,
    ) -> Result<Self> {
        let packs = packs.map(|packs| pack::left(&packs, picks));
        let own = if picks.len() == members.len() {
            // No row was removed, as always under `replace`, so the first `own` rows are still the
            // new ones.
            own
        } else {
            // Repeated rows follow the new rows, so the new rows that remain come first.
            picks.partition_point(|&row| row < own)
        };
        let rows = UInt64Array::from_iter_values(picks.iter().map(|&row| row as u64));
        Ok(Self {
            failure: Some(first),
            ..Self::whole(members.take(&rows)?, packs, own)
        })
    }

    /// Repeats rows (or packs) of the batch from its beginning until it has `units` rows (or
    /// packs).
    ///
    /// # Errors
    /// Fails if all rows of the batch failed, because then there is no row to repeat.
    pub(super) fn fill(&mut self, units: usize) -> Result<()> {
        let rows = self.members.len();
        let found = self.packs.as_ref().map_or(rows, Vec::len);
        if found >= units {
            return Ok(());
        }
        if rows == 0 {
            let Some(mut failure) = self.failure.take() else {
                return Ok(());
            };
            failure.cause = format!(
                "every row of this rank's batch failed, so none can be repeated to fill the batch up to the size of \
                 the other ranks' batches; the first: {}",
                failure.cause
            );
            return Err(Error::Row(Box::new(failure)));
        }
        let around = match &mut self.packs {
            None => UInt64Array::from_iter_values((0..units).map(|i| (i % rows) as u64)),
            Some(packs) => {
                let mut starts = Vec::with_capacity(found);
                let mut end = 0_u64;
                for &rows in packs.iter() {
                    starts.push(end);
                    end += u64::from(rows);
                }
                let mut picks: Vec<u64> = (0..end).collect();
                for again in 0..units - found {
                    let (start, rows) = (starts[again % found], packs[again % found]);
                    picks.extend(start..start + u64::from(rows));
                    packs.push(rows);
                }
                UInt64Array::from(picks)
            }
        };
        self.members = self.members.take(&around)?;
        self.padded += units - found;
        Ok(())
    }
}

/// Returns the number of rows (or packs) that follow the first `own` rows of a batch of `rows`
/// rows.
fn padded(rows: usize, own: usize, packs: Option<&[u32]>) -> usize {
    match packs {
        None => rows - own,
        // Either all packs of a batch are repeated packs or none.
        Some(packs) if own == 0 => packs.len(),
        Some(_) => 0,
    }
}
