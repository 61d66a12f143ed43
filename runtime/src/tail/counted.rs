//! Rows that are counted and grouped as they come, and where their stream stands.

use std::sync::Arc;

use datafusion::common::internal_err;
use forebay_planner::clauses::Remainder;

use super::held::{self, Held};
use super::{Batch, Tail};
use crate::cursor::{Carried, Cursor};
use crate::error::{Error, Result};
use crate::fragment::row_batch::RowBatch;
use crate::group::{Carry, Group, Grouper};
use crate::origin::Origin;

impl Tail {
    /// Adds rows, which come in stream order, to be counted and grouped.
    pub(crate) fn counted(
        &mut self,
        pieces: Vec<RowBatch>,
        origin: &Arc<Origin>,
        flush: bool,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        for (number, rows) in pieces.into_iter().enumerate() {
            self.count_piece(rows, origin, flush && number == 0, out)?;
        }
        Ok(())
    }

    fn count_piece(
        &mut self,
        mut rows: RowBatch,
        origin: &Arc<Origin>,
        flush: bool,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        // How far the next window was begun when TAKE had its last row is a matter of timing.
        if self.is_satisfied() {
            return Ok(());
        }
        let mut closed = Vec::new();
        if flush {
            self.at = Some(origin.before());
            self.grouper.flush(&mut closed);
            self.close_all(&mut closed, out)?;
        }
        let keys = self.keyed(&mut rows)?;
        let ids = rows.row_ids()?;
        let piece = self.pieces.add(rows);
        for (row, &position) in ids.position.values().iter().enumerate() {
            if self.is_satisfied() {
                break;
            }
            let Some(carried) = origin.carried(&self.snapshot, position, 0) else {
                return Ok(internal_err!("a row came that was not asked for")?);
            };
            let given = match self.last_row {
                // Of a MIX, the same row may come twice, in two passes.
                Some((stored, given)) if !origin.mixes && stored == carried.stored => given + 1,
                _ => 1,
            };
            self.last_row = Some((carried.stored, given));
            let carried = Carried {
                nth: given - 1,
                ..carried
            };
            self.count.rows += 1;
            if self.count.rows <= self.skip {
                continue;
            }
            let held = Held {
                piece,
                row: row as u32,
                carried,
            };
            let key = keys.as_ref().map(|keys| keys[row]).unwrap_or_default();
            self.grouper.push(held, key, &mut closed);
            if !closed.is_empty() {
                self.at = origin.behind(&self.snapshot, position, given);
                self.close_all(&mut closed, out)?;
            }
        }
        if let Some(&position) = ids.position.values().last()
            && let Some((_, given)) = self.last_row
        {
            self.at = origin.behind(&self.snapshot, position, given);
        }
        self.pieces.keep_only(&mut self.grouper)?;
        Ok(())
    }

    /// Takes rows in that were carried to where the run goes on; with the last of them come their groups.
    pub(crate) fn restored(
        &mut self,
        rows: Vec<RowBatch>,
        groups: Option<Carry<(usize, Carried)>>,
        at: &Cursor,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        self.restored.extend(rows);
        let Some(groups) = groups else {
            return Ok(());
        };
        let pieces = std::mem::take(&mut self.restored);
        let mut rows = held::joined(&pieces, &self.whole, &self.snapshot)?;
        if rows.len() != groups.rows().count() {
            return Err(Error::Config(format!(
                "the resume token carries {} rows, of which {} are no longer there: a file was changed since; \
                     resume from the data as it was, or begin the epoch again",
                groups.rows().count(),
                groups.rows().count().saturating_sub(rows.len())
            )));
        }
        let keys = self.keyed(&mut rows)?.unwrap_or_default();
        let piece = self.pieces.add(rows);
        let held = groups.map(|&(at, carried)| {
            let row = at as u32;
            let held = Held {
                piece,
                row,
                carried,
            };
            Ok::<_, Error>((held, keys.get(at).copied().unwrap_or_default()))
        })?;
        self.grouper = Grouper::resume(self.grouping.clone(), &held);
        let mut ready = Vec::new();
        for group in held.ready {
            ready.push(Group {
                rows: group.rows.into_iter().map(|(row, _)| row).collect(),
                packs: group.packs,
            });
        }
        self.at = Some(at.clone());
        self.close_all(&mut ready, out)
    }

    /// Ends the span of counted rows: the last, perhaps short, batches.
    pub(crate) fn finish(&mut self, out: &mut Vec<Batch>) -> Result<()> {
        let mut closed = Vec::new();
        self.grouper.finish(&mut closed);
        let mut cursor = self.at.take().unwrap_or_default();
        (cursor.epoch, cursor.ended) = (self.count.epoch, true);
        self.at = Some(cursor);
        self.close_all(&mut closed, out)?;
        self.pieces.keep_only(&mut self.grouper)?;
        self.at = None;
        Ok(())
    }

    /// Puts out counted batches that are complete.
    fn close_all(&mut self, closed: &mut Vec<Group<Held>>, out: &mut Vec<Batch>) -> Result<()> {
        let closed = std::mem::take(closed);
        for (at, group) in closed.iter().enumerate() {
            self.count.batches += 1;
            self.count.step += 1;
            let cursor = Arc::new(self.cursor(&closed[at + 1..])?);
            let mut members = self.pieces.take(&group.rows, &self.whole)?;
            let own = members.len();
            if self.deal.batch.remainder == Remainder::Pad {
                members = self.padded(members, group.packs.as_ref())?;
                self.last = Some((members.clone(), group.packs.clone()));
            }
            let place = (self.count.epoch, self.count.step - 1);
            let made = self.settled((members, group.packs.clone()), own, place)?;
            self.emit(made, place, cursor, out)?;
        }
        Ok(())
    }

    /// Where the stream of counted rows stands, with batches that are complete but not taken.
    fn cursor(&self, behind: &[Group<Held>]) -> Result<Cursor> {
        let Some(at) = &self.at else {
            return Ok(internal_err!("a batch is complete before a row came")?);
        };
        let mut cursor = Cursor {
            step: self.count.step,
            batches: self.count.batches,
            rows: self.count.rows,
            carry: None,
            carry_passes: Vec::new(),
            ..at.clone()
        };
        if !self.grouper.is_empty() || !behind.is_empty() {
            let carry = Carry {
                ready: behind.to_vec(),
                ..self.grouper.carry()
            };
            cursor.set_carry(&carry.map(|held| Ok::<_, Error>(held.carried))?);
        }
        Ok(cursor)
    }
}
