//! The counted mode of the sequencer, for a single rank. If a filter or the length of a sequence
//! decides during computation which rows exist, the sequencer plans stored rows in order, and the
//! tail counts the computed rows.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result as EngineResult};

use super::segment_builder::PlannedRow;
use super::sequencer::Sequencer;
use super::work::Delivery;
use crate::error::Result;
use crate::segment::SegmentRows;
use crate::stream::group::Carry;
use crate::stream::origin::SegmentOrigin;

impl Sequencer {
    /// Plans rows of the epoch for one segment, from one window of each input.
    pub(super) async fn counted(&mut self) -> Result<()> {
        if self.accountant.ended || self.reached.has(self.epoch) {
            return self.end_of_epoch().await;
        }
        let room = self.run.segment_rows as usize;
        let mut origin = None;
        while self.building.len() < room {
            let input = self.inputs.draw();
            if let Some(row) = self.inputs.all[input].peek() {
                self.gather(input, &row, room, &mut origin)?;
                continue;
            }
            // All rows of a segment share one origin, so a segment cannot cross the end of a
            // window.
            if !self.building.is_empty() {
                break;
            }
            if !self.enter(input).await? && !self.inputs.next_pass(input).await? {
                return self.end_of_epoch().await;
            }
        }
        if let Some(mut origin) = origin {
            let flush = self.inputs.take_horizon();
            let segment = self.building.take();
            origin.rows = segment.rows();
            self.emit_segment(segment, Delivery::Counted { origin, flush });
        }
        Ok(())
    }

    /// Adds the next stored row of an input, with all output rows that this stored row still gives,
    /// to the segment; or, if each stored row gives one row, as many rows as there is room for. Skips
    /// a stored row that gives no row.
    fn gather(
        &mut self,
        input: usize,
        row: &PlannedRow,
        room: usize,
        origin: &mut Option<SegmentOrigin>,
    ) -> Result<()> {
        let at = &mut self.inputs.all[input];
        let gives_none =
            { at.counts.as_ref() }.is_some_and(|counts| counts.of_row(row.stored) == 0);
        if gives_none || row.nth > 0 && !self.run.job.plan.multiplies {
            at.leave();
            return Ok(());
        }
        if origin.is_none() {
            *origin = Some(self.origin());
        }
        let plan = &self.run.job.plan;
        let at = &mut self.inputs.all[input];
        if row.nth == 0 && at.counts.is_none() && !plan.multiplies && self.run.job.mix().is_none() {
            let (window, positions) = at.take_positions(room - self.building.len());
            let building = &mut self.building;
            return Ok(building.push_positions(window, positions, &self.inputs.windows)?);
        }
        at.take(row, None);
        self.inputs.note_drawn();
        let rows = row.nth..u32::MAX;
        Ok({ &mut self.building }.push_range(row, rows, &self.inputs.windows)?)
    }

    /// Returns the origin of the rows that are planned next.
    pub(super) fn origin(&self) -> SegmentOrigin {
        SegmentOrigin {
            epoch: self.epoch,
            before: self.inputs.position(),
            rows: SegmentRows::default(),
            input_of: Arc::clone(self.run.job.passes.input_of_scan()),
            mixes: self.run.job.mix().is_some(),
        }
    }

    /// Plans the rows that a cursor carries, in the order of `Carry::rows`.
    pub(super) fn restore(&mut self, carry: &Carry<PlannedRow>) -> EngineResult<()> {
        let mut nth = 0;
        let numbered = carry.map(|row| {
            nth += 1;
            Ok::<_, DataFusionError>((nth - 1, row.carried()))
        })?;
        let mut numbered = Some(numbered);
        let rows: Vec<&PlannedRow> = carry.rows().collect();
        let room = self.run.segment_rows.max(1) as usize;
        let mut chunks = rows.chunks(room).peekable();
        while let Some(rows) = chunks.next() {
            for row in rows {
                // Two carried rows never share a row location, so carried rows are computed in this
                // order.
                self.building.last = None;
                self.building.push(row, &self.inputs.windows)?;
            }
            let is_last = chunks.peek().is_none();
            self.emit(Delivery::Restored(numbered.take_if(|_| is_last)));
        }
        Ok(())
    }
}
