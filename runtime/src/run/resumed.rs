//! Checks of the cursor that a run resumes from. A token is untrusted input.

use forebay_planner::clauses::BatchSize;
use forebay_planner::groups::MAX_CARRY;

use super::job_run::JobRun;
use crate::error::{Error, Result};
use crate::stream::cursor::Cursor;

/// Upper bound of the numbers of rows, batches and steps in a cursor, so that counting on cannot
/// overflow.
const LARGEST: u64 = 1 << 62;
/// Upper bound of the number of passes over an input in one epoch.
const PASSES: u32 = 1 << 30;

impl JobRun {
    /// Checks that a cursor is a valid position in this stream.
    ///
    /// Fails if it is not one.
    /// Fails if it is not.
    pub(super) fn check_cursor(&self, cursor: &Cursor) -> Result<()> {
        if cursor.arms.len() != self.job.passes.inputs() {
            return damaged("its number of inputs differs from the pipeline's");
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
            return damaged("a count is too large");
        }
        for (input, at) in cursor.arms.iter().enumerate() {
            if at.pass >= PASSES {
                return damaged("the number of passes is too large");
            }
            let of_pass = self.job.passes.windows(input, (cursor.epoch, at.pass));
            let windows = of_pass.len();
            // The windows of an epoch that has ended are not entered any more, so their indices are
            // not used.
            if !cursor.ended && at.window.is_some_and(|window| window as usize >= windows) {
                return damaged("it names a window that the data does not have");
            }
            if let Some((stored, given)) = at.row {
                let plan = &self.job.plan;
                let fits = if plan.multiplies {
                    given < u32::MAX
                } else {
                    given == 1 || given == u32::MAX
                };
                if !fits || plan.data.snapshot.row(stored).is_none() {
                    return damaged("it names a row that the data does not have");
                }
            }
        }
        self.check_carry(cursor)
    }

    /// Checks that the cursor carries no more rows than open groups can hold.
    fn check_carry(&self, cursor: &Cursor) -> Result<()> {
        let carry = cursor.carry()?;
        let passes = &cursor.carry_passes;
        let too_late = |&(epoch, pass): &(u64, u32)| epoch > cursor.epoch || pass >= PASSES;
        if passes.len() as u64 > MAX_CARRY || passes.iter().any(too_late) {
            return damaged("it carries rows of later passes");
        }
        let packs = self.job.clauses.pack.is_some();
        let full = |group: &crate::stream::group::Group<_>| {
            let held = match &group.packs {
                Some(packs) => packs.len(),
                None => group.rows.len(),
            };
            let is_full = match self.rules.ranks.batch.size {
                BatchSize::Rows(rows) => held as u64 >= rows.get(),
                BatchSize::Tokens(_) => false,
            };
            is_full || group.packs.is_some() != packs
        };
        if carry.open.len() > self.rules.grouping.buckets()
            || carry.open.iter().any(full)
            || !packs && !carry.bins.is_empty()
        {
            return damaged("it carries more rows than an open batch can have");
        }
        Ok(())
    }
}

fn damaged(what: &str) -> Result<()> {
    Err(Error::Config(format!(
        "the resume token is damaged: {what}"
    )))
}
