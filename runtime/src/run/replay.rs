//! Replays dead letters: computes their rows again, outside of the stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::job_run::JobRun;
use super::segment_builder::{NO_POSITION, PlannedRow, SegmentBuilder};
use super::work::{Delivery, WorkItem};
use crate::dead_letters::DeadLetter;
use crate::error::{Error, Result};
use crate::order::StoredRow;
use crate::segment::OrderedSegment;
use crate::stream::accountant::{ALL_ROWS, PlannedBatch};

impl JobRun {
    /// Returns the stored row of each dead letter, with the dead letter.
    ///
    /// # Errors
    /// Fails if a letter belongs to another pipeline, or the row of a letter no longer exists.
    pub(super) fn replayed(&self, letters: &[DeadLetter]) -> Result<Vec<(StoredRow, DeadLetter)>> {
        let snapshot = &self.job.plan.data.snapshot;
        let mut rows = Vec::with_capacity(letters.len());
        for letter in letters {
            if letter.semantic_hash != self.job.name.semantic_hash {
                return Err(Error::Config(format!(
                    "the dead letters belong to another pipeline, or to an earlier form of this one: semantic hash {}, \
                     now {}",
                    letter.semantic_hash, self.job.name.semantic_hash
                )));
            }
            let row = snapshot.find(letter.occurrence, &letter.file, letter.row);
            let row = row.ok_or_else(|| {
                Error::Config(format!(
                    "the failed row {} of {} no longer exists",
                    letter.row, letter.file
                ))
            })?;
            rows.push((row, letter.clone()));
        }
        Ok(rows)
    }

    /// Returns the work items that compute `rows` again.
    pub(super) fn replay(
        &self,
        rows: &[(StoredRow, DeadLetter)],
    ) -> datafusion::common::Result<Vec<WorkItem<OrderedSegment>>> {
        let snapshot = &self.job.plan.data.snapshot;
        let mut building = SegmentBuilder::new(self.job.plan.multiplies);
        let mut items = vec![WorkItem::Begin(self.first_epoch)];
        let size = self.rules.ranks.batch.rows().unwrap_or(1).max(1) as usize;
        for (step, rows) in (0..).zip(rows.chunks(size)) {
            let mut windows = BTreeMap::new();
            for (id, (row, letter)) in (0..).zip(rows) {
                let window = self.job.split(row.split, letter.pass);
                windows.insert(id, Arc::new(window));
                let row = PlannedRow {
                    row: *row,
                    stored: snapshot.stored(*row),
                    nth: letter.child,
                    window: id,
                    at: NO_POSITION,
                    pass: (letter.epoch, 0),
                };
                building.push(&row, &windows)?;
            }
            let batch = PlannedBatch {
                epoch: rows.first().map_or(0, |(_, letter)| letter.epoch),
                step,
                rows: ALL_ROWS,
                ..PlannedBatch::default()
            };
            items.push(WorkItem::Rows {
                epoch: self.first_epoch,
                // A dead letter names a row by its index among the children that `unnest` made of
                // the stored row.
                work: OrderedSegment {
                    by_child: true,
                    ..building.take()
                },
                delivery: Delivery::Planned(vec![batch]),
            });
        }
        Ok(items)
    }
}
