//! Rows that are counted as they come: one rank alone, where a filter or the length of a sequence decides
//! what is not known before rows are computed. The sequencer gives rows in order; the tail counts them.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};

use super::arm::Arm;
use super::sequencer::Sequencer;
use super::work::{Orders, Picked, Step};
use crate::cursor::Carried;
use crate::group::Carry;
use crate::origin::Origin;

impl Sequencer {
    /// Gives rows of the epoch, as many as make a segment, of one window of each arm.
    pub(super) async fn counted(&mut self) -> Result<()> {
        let opened = Arc::clone(&self.opened);
        if self.ended || self.satisfied.has(self.epoch) {
            return self.end_of_epoch().await;
        }
        let snapshot = &opened.job.snapshot;
        let room = opened.segment_rows as usize;
        let mut origin = None;
        while self.building.len() < room {
            let arm = self.draw();
            let Some((row, given)) = self.arms[arm].peek() else {
                // Rows of a window and of the next are told apart by their origin.
                if !self.building.is_empty() {
                    break;
                }
                if !self.enter(arm).await? {
                    self.end_of_pass(arm).await?;
                    if self.ended {
                        return self.end_of_epoch().await;
                    }
                }
                continue;
            };
            let stored = snapshot.stored(row);
            let facts = &self.arms[arm].facts;
            let gives_none = facts
                .as_ref()
                .is_some_and(|facts| facts.of_row(stored) == 0);
            if gives_none || given > 0 && !opened.job.multiplies {
                self.arms[arm].leave();
                continue;
            }
            if origin.is_none() {
                origin = Some(self.origin());
            }
            let is_plain = given == 0 && facts.is_none() && !opened.job.multiplies;
            if is_plain && opened.mix().is_none() {
                let window = self.arms[arm].window.as_ref().map_or(0, |w| w.id);
                let run = self.arms[arm].take_run(room - self.building.len(), snapshot);
                self.building.push_run(run, window, &self.entered)?;
                continue;
            }
            self.arms[arm].take(stored, 1, None);
            self.drawn += u64::from(opened.mix().is_some());
            let window = self.arms[arm].window.as_ref().map_or(0, |w| w.id);
            let picked = Picked {
                row,
                nth: 0,
                window,
            };
            self.building
                .push_range(&picked, given..u32::MAX, &self.entered)?;
        }
        if let Some(mut origin) = origin {
            origin.places = self.building.places().to_vec();
            let orders = Orders::Counted {
                origin: Arc::new(origin),
                flush: std::mem::take(&mut self.flush),
            };
            let of = self.building.take();
            let epoch = self.epoch;
            self.out.push_back(Step::Rows { epoch, of, orders });
        }
        Ok(())
    }

    /// Where rows come from that are given next.
    pub(super) fn origin(&self) -> Origin {
        Origin {
            epoch: self.epoch,
            arms: self.arms.iter().map(Arm::cursor).collect(),
            drawn: self.drawn,
            places: Vec::new(),
            arm_of: Arc::clone(&self.opened.arm_of),
            mixes: self.opened.mix().is_some(),
        }
    }

    /// Gives the rows that were carried to where the run goes on.
    pub(super) fn restore(&mut self, carry: &Carry<Picked>, rows: &Carry<Carried>) -> Result<()> {
        let room = self.opened.segment_rows.max(1) as usize;
        let epoch = self.epoch;
        let mut nth = 0;
        let numbered = rows.map(|row| {
            nth += 1;
            Ok::<_, DataFusionError>((nth - 1, *row))
        })?;
        let all: Vec<Picked> = carry.rows().copied().collect();
        let mut numbered = Some(numbered);
        let chunks = all.chunks(room).len();
        for (at, rows) in all.chunks(room).enumerate() {
            for row in rows {
                // Each is a place of its own, in the order of the groups.
                self.building.push_alone(row, &self.entered)?;
            }
            let last = at + 1 == chunks;
            let orders = Orders::Restored(numbered.take_if(|_| last));
            let of = self.building.take();
            self.out.push_back(Step::Rows { epoch, of, orders });
        }
        Ok(())
    }
}
