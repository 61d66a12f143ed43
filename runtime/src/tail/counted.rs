//! The counted mode of the tail, in which rows are counted and grouped into batches only after they
//! are computed.

use datafusion::common::internal_err;

use super::assembly::Tail;
use super::batch::Batch;
use super::held::{self, Held};
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
        origin: &SegmentOrigin,
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
        origin: &SegmentOrigin,
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
            let at = || origin.before.clone();
            self.counter.accountant.flush(at);
            self.put_out_counted(out)?;
        }
        let keys = self.keyed(&mut rows)?;
        let ids = rows.row_ids()?;
        let piece = self.counter.pieces.add(rows);
        let positions = ids.position.values();
        let (mut row, mut last) = (0, None);
        while row < positions.len() && !self.counter.accountant.take_reached() {
            let Some(room) = self.counter.accountant.room() else {
                let (held, at, given) = self.held((piece, row), positions[row], origin)?;
                last = Some((at, given));
                let key = keys.as_ref().map(|keys| keys[row]).unwrap_or_default();
                let behind = || origin.behind(&self.snapshot, at, given);
                self.counter.accountant.count(held, key, behind);
                row += 1;
                self.put_out_counted(out)?;
                continue;
            };
            // Each batch is a number of rows, so the rows of the open batch are counted at once.
            let end = positions
                .len()
                .min(row.saturating_add(room.max(1) as usize));
            let mut run = Vec::with_capacity(end - row);
            for row in row..end {
                let (held, at, given) = self.held((piece, row), positions[row], origin)?;
                last = Some((at, given));
                run.push(held);
            }
            let (at, given) = last.unwrap_or_default();
            let behind = || origin.behind(&self.snapshot, at, given);
            self.counter.accountant.count_run(run.into_iter(), behind);
            row = end;
            self.put_out_counted(out)?;
        }
        if let Some((at, given)) = last {
            self.counter.at = origin.behind(&self.snapshot, at, given);
        }
        { &mut self.counter.pieces }.keep_only(&mut self.counter.accountant)
    }

    /// Returns row `row` of a piece, whose stored row has this position in its segment. Also returns
    /// the index of the stored row in `origin`, and the number of its output rows so far.
    fn held(
        &mut self,
        (piece, row): (u32, usize),
        position: u64,
        origin: &SegmentOrigin,
    ) -> Result<(Held, usize, u32)> {
        let Some(at) = origin.index_of(position) else {
            return Ok(internal_err!("a segment has a row that was not requested")?);
        };
        let carried = origin.carried(&self.snapshot, at);
        let (carried, given) = self.counter.named(origin.mixes, carried);
        let held = Held {
            piece,
            row: row as u32,
            carried,
        };
        Ok((held, at, given))
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
        let piece = self.counter.pieces.add(rows);
        let held = groups.map(|&(at, carried)| {
            let row = at as u32;
            let held = Held {
                piece,
                row,
                carried,
            };
            Ok::<_, Error>((held, keys.get(at).copied().unwrap_or_default()))
        })?;
        self.counter.accountant.restore(held, &at);
        self.counter.at = at;
        self.put_out_counted(out)
    }

    /// Ends the span: appends its last batches, which may be short, to `out`.
    pub(crate) fn finish(&mut self, out: &mut Vec<Batch>) -> Result<()> {
        let at = std::mem::take(&mut self.counter.at);
        self.counter.accountant.finish_span(|| at.clone());
        self.put_out_counted(out)?;
        { &mut self.counter.pieces }.keep_only(&mut self.counter.accountant)
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
