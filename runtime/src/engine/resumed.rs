//! Whether a run can go on where a resume token says. A token comes from outside, so nothing of it is believed.

use forebay_planner::clauses::BatchSize;
use forebay_planner::groups::MAX_CARRY;

use super::Opened;
use crate::cursor::Cursor;
use crate::error::{Error, Result};

/// Counts of rows, batches and steps are below this, so that counting on never overflows.
const LARGEST: u64 = 1 << 62;
/// Passes of an arm in one epoch are below this.
const PASSES: u32 = 1 << 30;

impl Opened {
    /// Checks that a cursor stands somewhere in this stream.
    ///
    /// # Errors
    /// It does not, or what it says cannot be.
    pub(super) fn check_cursor(&self, cursor: &Cursor) -> Result<()> {
        if cursor.arms.len() != self.arms.len() {
            return damaged("it has another number of inputs");
        }
        let last = self.last_epoch();
        if cursor.epoch < self.first_epoch || last.is_some_and(|last| cursor.epoch >= last) {
            let (first, epoch) = (self.first_epoch, cursor.epoch);
            let run = match last {
                Some(last) => format!("{first} to {}", last.saturating_sub(1)),
                None => format!("{first} and up"),
            };
            return Err(Error::Config(format!(
                "the resume token stands in epoch {epoch}, and the run has the epochs {run}: give it as many epochs \
                 as the run had that the token is of"
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
        for (arm, at) in cursor.arms.iter().enumerate() {
            if at.pass >= PASSES {
                return damaged("a count of passes is too large");
            }
            let windows = self.arm_windows(arm, (cursor.epoch, at.pass)).len();
            // Behind an epoch's end, its windows are not entered.
            if !cursor.ended && at.window.is_some_and(|window| window as usize >= windows) {
                return damaged("it names a window that the data does not have");
            }
            if let Some((stored, given)) = at.row {
                let fits = match self.job.multiplies {
                    true => given < u32::MAX,
                    false => given == 1 || given == u32::MAX,
                };
                if !fits || self.job.snapshot.row(stored).is_none() {
                    return damaged("it names a row that the data does not have");
                }
            }
        }
        self.check_carry(cursor)
    }

    /// Checks that no more is carried than can be held open.
    fn check_carry(&self, cursor: &Cursor) -> Result<()> {
        let carry = cursor.carry()?;
        let passes = &cursor.carry_passes;
        let too_late = |&(epoch, pass): &(u64, u32)| epoch > cursor.epoch || pass >= PASSES;
        if passes.len() as u64 > MAX_CARRY || passes.iter().any(too_late) {
            return damaged("it carries rows of passes that did not come yet");
        }
        let packs = self.clauses.pack.is_some();
        let full = |group: &crate::group::Group<_>| {
            let held = match &group.packs {
                Some(packs) => packs.len(),
                None => group.rows.len(),
            };
            let is_full = match self.deal.batch.size {
                BatchSize::Rows(rows) => held as u64 >= rows.get(),
                BatchSize::Tokens(_) => false,
            };
            is_full || group.packs.is_some() != packs
        };
        if carry.open.len() > self.grouping.buckets()
            || carry.open.iter().any(full)
            || !packs && !carry.bins.is_empty()
        {
            return damaged("it carries more rows than a batch that is being filled can have");
        }
        Ok(())
    }
}

fn damaged(what: &str) -> Result<()> {
    Err(Error::Config(format!(
        "the resume token is damaged: {what}"
    )))
}
