//! The counted mode of the tail, in which rows are counted and grouped into batches only after they
//! are computed.

use std::sync::Arc;

use datafusion::common::internal_err;

use super::assembly::Tail;
use super::batch::Batch;
use super::held::{self, Held, HeldPoint, RowNames};
use crate::error::{Error, Result};
use crate::fragment::row_batch::RowBatch;
use crate::stream::accountant::AssignedBatch;
use crate::stream::cursor::{CarriedRow, InputPosition};
use crate::stream::group::Carry;
use crate::stream::origin::SegmentOrigin;

impl Tail {
    /// Counts and groups `pieces`, computed rows in stream order, and appends the completed batches
    /// to `out`. If `flush` is true, the open packs and buckets of earlier rows are completed
    /// first.
    pub(crate) fn counted(
        &mut self,
        pieces: Vec<RowBatch>,
        origin: SegmentOrigin,
        flush: bool,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        let origin = Arc::new(origin);
        for (number, rows) in pieces.into_iter().enumerate() {
            self.count_piece(rows, &origin, flush && number == 0, out)?;
        }
        Ok(())
    }

    fn count_piece(
        &mut self,
        mut rows: RowBatch,
        origin: &Arc<SegmentOrigin>,
        flush: bool,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        // TAKE is reached. The number of rows that are computed after the last row of TAKE depends
        // on timing, so these rows are ignored.
        if self.counter.accountant.take_reached() {
            return Ok(());
        }
        if flush {
            self.counter.at = origin.before.clone();
            let point = HeldPoint {
                pieces: &self.counter.pieces,
                snapshot: &self.snapshot,
                inputs: || origin.before.clone(),
            };
            self.counter.accountant.flush(&point)?;
            self.put_out_counted(out)?;
        }
        let keys = self.keyed(&mut rows)?;
        let positions = rows.row_ids()?.position;
        let positions = positions.values();
        if { positions.iter().max() }.is_some_and(|&last| last >= origin.rows.len()) {
            return Ok(internal_err!("a segment has a row that was not requested")?);
        }
        let names = RowNames::Segment(Arc::clone(origin));
        let piece = self.counter.pieces.add(rows, names)?;
        let first = positions.first().and_then(|&first| origin.rows.get(first));
        let mut given = first.map_or(0, |row| {
            let stored = self.snapshot.stored(row);
            self.counter.given(origin.mixes, stored)
        });
        let mut row = 0;
        while row < positions.len() && !self.counter.accountant.take_reached() {
            // The rows of the open batch are counted at once if each batch is a number of rows, and one
            // by one otherwise.
            let room = self.counter.accountant.room();
            let at_once = usize::try_from(room.unwrap_or(1).max(1)).unwrap_or(usize::MAX);
            let end = positions.len().min(row.saturating_add(at_once));
            let mut held = |at: usize| {
                if at > 0 && positions[at] != positions[at - 1] {
                    given = 0;
                }
                given += 1;
                Held {
                    piece,
                    row: at as u32,
                    nth: given - 1,
                }
            };
            let (one, run) = match room {
                Some(_) => (None, (row..end).map(held).collect()),
                None => (Some(held(row)), Vec::new()),
            };
            let point = HeldPoint {
                pieces: &self.counter.pieces,
                snapshot: &self.snapshot,
                inputs: || origin.behind(&self.snapshot, positions[end - 1], given),
            };
            if let Some(held) = one {
                let key = keys.as_ref().map(|keys| keys[row]).unwrap_or_default();
                self.counter.accountant.count(held, key, &point)?;
            } else {
                { &mut self.counter.accountant }.count_run(run.into_iter(), &point)?;
            }
            row = end;
            self.put_out_counted(out)?;
        }
        if let Some(&position) = row.checked_sub(1).map(|last| &positions[last]) {
            self.counter.at = origin.behind(&self.snapshot, position, given);
            let last = origin.rows.get(position);
            self.counter.last_row = last.map(|row| (self.snapshot.stored(row), given));
        }
        { &mut self.counter.pieces }.keep_only(&mut self.counter.accountant, &self.snapshot)
    }

    /// On resume, adds the rows that waited in open groups when the token was written. May be
    /// called several times; the last call also passes `groups`, which contains the rows of all
    /// calls.
    pub(crate) fn restored(
        &mut self,
        rows: Vec<RowBatch>,
        groups: Option<Carry<(usize, CarriedRow)>>,
        at: InputPosition,
        out: &mut Vec<Batch>,
    ) -> Result<()> {
        self.counter.restored.extend(rows);
        let Some(groups) = groups else {
            return Ok(());
        };
        let pieces = std::mem::take(&mut self.counter.restored);
        let mut rows = held::joined(&pieces, &self.whole)?;
        let expected = groups.rows().count();
        if rows.len() != expected {
            return Err(Error::Config(format!(
                "the resume token carries {expected} rows, of which {} no longer exist: a file was changed since; \
                 resume with the original data, or begin the epoch again",
                expected.saturating_sub(rows.len())
            )));
        }
        let keys = self.keyed(&mut rows)?.unwrap_or_default();
        let mut names: Vec<(u32, CarriedRow)> = { groups.rows() }
            .map(|&(at, name)| (at as u32, name))
            .collect();
        names.sort_unstable_by_key(|(row, _)| *row);
        let names = RowNames::Listed(names);
        let piece = self.counter.pieces.add(rows, names)?;
        let held = groups.map(|&(at, name)| {
            let held = Held {
                piece,
                row: at as u32,
                nth: name.nth,
            };
            Ok::<_, Error>((held, keys.get(at).copied().unwrap_or_default()))
        })?;
        let point = HeldPoint {
            pieces: &self.counter.pieces,
            snapshot: &self.snapshot,
            inputs: || at.clone(),
        };
        self.counter.accountant.restore(held, &point)?;
        self.counter.at = at;
        self.put_out_counted(out)
    }

    /// Ends the span: appends its last batches, which may be short, to `out`.
    pub(crate) fn finish(&mut self, out: &mut Vec<Batch>) -> Result<()> {
        let at = std::mem::take(&mut self.counter.at);
        let point = HeldPoint {
            pieces: &self.counter.pieces,
            snapshot: &self.snapshot,
            inputs: || at.clone(),
        };
        self.counter.accountant.finish_span(&point)?;
        self.put_out_counted(out)?;
        { &mut self.counter.pieces }.keep_only(&mut self.counter.accountant, &self.snapshot)
    }

    /// Settles the batches that the accountant has completed, and appends them to `out`.
    fn put_out_counted(&mut self, out: &mut Vec<Batch>) -> Result<()> {
        for AssignedBatch { rows, plan } in self.counter.accountant.take_assigned() {
            let members = self.counter.pieces.take(&rows, &self.whole)?;
            let own = members.len();
            self.put_out(members, own, plan, out)?;
        }
        Ok(())
    }
}
