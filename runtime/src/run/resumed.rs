//! Checks of the cursor that a run resumes from. A token is untrusted input.

use forebay_planner::groups::MAX_CARRY;

use super::job_run::JobRun;
use crate::error::{Error, Result};
use crate::stream::cursor::{Cursor, damaged};
use crate::stream::group::Group;

/// Exclusive upper bound of each count in a cursor (rows, batches, steps), so that adding to a
/// count cannot overflow.
const LARGEST: u64 = 1 << 62;
/// Exclusive upper bound of the number of passes over an input in one epoch.
const PASSES: u32 = 1 << 30;

impl JobRun {
    /// Checks that a cursor is a valid position in this stream.
    ///
    /// # Errors
    /// Fails if `cursor` is not such a position.
    pub(super) fn check_cursor(&self, cursor: &Cursor) -> Result<()> {
        if cursor.arms.len() != self.job.passes.inputs() {
            return Err(damaged("its number of inputs differs from the pipeline's"));
        }
        let last = self.end_epoch();
        if cursor.epoch < self.first_epoch || last.is_some_and(|last| cursor.epoch >= last) {
            let (first, epoch) = (self.first_epoch, cursor.epoch);
            let run = match last {
                Some(last) => format!("{first} to {}", last.saturating_sub(1)),
                None => format!("{first} and up"),
            };
            return Err(Error::Config(format!(
                "the resume token is in epoch {epoch}, but the run has the epochs {run}; set the same number of \
                 epochs as in the run that made the token"
            )));
        }
        let counts = [
            cursor.epoch,
            cursor.step,
            cursor.batches,
            cursor.rows,
            cursor.drawn,
        ];
        if counts.iter().any(|&count| count >= LARGEST) {
            return Err(damaged("a count is too large"));
        }
        for (input, at) in cursor.arms.iter().enumerate() {
            if at.pass >= PASSES {
                return Err(damaged("the number of passes is too large"));
            }
            let of_pass = self.job.passes.windows(input, (cursor.epoch, at.pass));
            let windows = of_pass.len();
            // If the epoch has ended, no more windows of that epoch are entered, so the index of
            // the window is not used.
            if !cursor.ended && at.window.is_some_and(|window| window as usize >= windows) {
                return Err(damaged("it names a window that the data does not have"));
            }
            if let Some((stored, given)) = at.row {
                let plan = &self.job.plan;
                let fits = if plan.multiplies {
                    given < u32::MAX
                } else {
                    given == 1 || given == u32::MAX
                };
                if !fits || plan.data.snapshot.row(stored).is_none() {
                    return Err(damaged("it names a row that the data does not have"));
                }
            }
        }
        self.check_carry(cursor)
    }

    /// Checks that the carried rows belong to past or current passes, and that the carried groups
    /// are open groups as this run makes them.
    fn check_carry(&self, cursor: &Cursor) -> Result<()> {
        let carry = cursor.carry()?;
        let passes = &cursor.carry_passes;
        let too_late = |&(epoch, pass): &(u64, u32)| epoch > cursor.epoch || pass >= PASSES;
        if passes.len() as u64 > MAX_CARRY || passes.iter().any(too_late) {
            return Err(damaged("it carries rows of later passes"));
        }
        let packs = self.job.clauses.pack.is_some();
        let batch = self.rules.ranks.batch;
        let full = |group: &Group<_>| {
            let is_full = batch.rows().is_some_and(|rows| group.units() >= rows);
            is_full || group.packs.is_some() != packs
        };
        if carry.open.len() > self.rules.grouping.buckets
            || carry.open.iter().any(full)
            || !packs && !carry.bins.is_empty()
        {
            return Err(damaged("it carries more rows than an open batch can have"));
        }
        Ok(())
    }
}
