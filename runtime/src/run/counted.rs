//! The counted mode of the sequencer. A single rank takes rows as they are computed, because a
//! filter or the length of a sequence decides which rows exist: the sequencer plans rows in order,
//! and the tail counts them.

use std::sync::Arc;

use datafusion::common::DataFusionError;

use super::planned_row::PlannedRow;
use super::sequencer::Sequencer;
use super::work::{Delivery, WorkItem};
use crate::error::Result;
use crate::stream::cursor::CarriedRow;
use crate::stream::group::Carry;
use crate::stream::origin::SegmentOrigin;

impl Sequencer {
    /// Plans rows of the epoch for one segment, from one window of each input.
    pub(super) async fn counted(&mut self) -> Result<()> {
        if self.ended || self.reached.has(self.epoch) {
            return self.end_of_epoch().await;
        }
        let room = self.run.segment_rows as usize;
        let mut origin = None;
        while self.building.len() < room {
            let input = self.inputs.draw();
            if self.inputs.input(input).peek().is_some() {
                self.gather(input, room, &mut origin)?;
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
            origin.places = self.building.places().to_vec();
            let delivery = Delivery::Counted {
                origin: Arc::new(origin),
                flush: self.inputs.take_horizon(),
            };
            let work = self.building.take();
            let epoch = self.epoch;
            self.out.push_back(WorkItem::Rows {
                epoch,
                work,
                delivery,
            });
        }
        Ok(())
    }

    /// Adds the next row of an input to the segment, or as many rows at once as there is room for.
    fn gather(
        &mut self,
        input: usize,
        room: usize,
        origin: &mut Option<SegmentOrigin>,
    ) -> Result<()> {
        let run = Arc::clone(&self.run);
        let snapshot = &run.job.plan.data.snapshot;
        let at = self.inputs.input_mut(input);
        let Some((row, given)) = at.peek() else {
            return Ok(());
        };
        let stored = snapshot.stored(row);
        let gives_none = { at.counts.as_ref() }.is_some_and(|counts| counts.of_row(stored) == 0);
        if gives_none || given > 0 && !run.job.plan.multiplies {
            at.leave();
            return Ok(());
        }
        let is_plain = given == 0 && at.counts.is_none() && !run.job.plan.multiplies;
        if origin.is_none() {
            *origin = Some(self.origin());
        }
        let at = self.inputs.input_mut(input);
        let (window, pass) = (at.window.as_ref().map_or(0, |w| w.id), at.pass);
        if is_plain && run.job.mix().is_none() {
            let run = at.take_run(room - self.building.len(), snapshot).to_vec();
            return Ok({ &mut self.building }.push_run(&run, window, &self.inputs.windows)?);
        }
        at.take(stored, 1, None);
        self.inputs.note_drawn();
        let picked = PlannedRow {
            row,
            stored,
            nth: 0,
            window,
            pass,
        };
        let rows = given..u32::MAX;
        Ok({ &mut self.building }.push_range(&picked, rows, &self.inputs.windows)?)
    }

    /// Returns the origin of the rows that are planned next.
    pub(super) fn origin(&self) -> SegmentOrigin {
        SegmentOrigin {
            epoch: self.epoch,
            before: self.inputs.position(),
            places: Vec::new(),
            input_of: Arc::clone(self.run.job.passes.input_of_scan()),
            mixes: self.run.job.mix().is_some(),
        }
    }

    /// Plans the rows that the cursor carries.
    pub(super) fn restore(
        &mut self,
        carry: &Carry<PlannedRow>,
        rows: &Carry<CarriedRow>,
    ) -> datafusion::common::Result<()> {
        let room = self.run.segment_rows.max(1) as usize;
        let epoch = self.epoch;
        let mut nth = 0;
        let numbered = rows.map(|row| {
            nth += 1;
            Ok::<_, DataFusionError>((nth - 1, *row))
        })?;
        let all: Vec<PlannedRow> = carry.rows().copied().collect();
        let mut numbered = Some(numbered);
        let chunks = all.chunks(room).len();
        for (at, rows) in all.chunks(room).enumerate() {
            for row in rows {
                // Each carried row gets a location of its own, in the order of the groups.
                { &mut self.building }.push_alone(row, &self.inputs.windows)?;
            }
            let last = at + 1 == chunks;
            let delivery = Delivery::Restored(numbered.take_if(|_| last));
            let work = self.building.take();
            self.out.push_back(WorkItem::Rows {
                epoch,
                work,
                delivery,
            });
        }
        Ok(())
    }
}
