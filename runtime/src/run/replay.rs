//! Replays dead letters: computes their rows again, outside of the stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::job_run::JobRun;
use super::planned_row::{ActiveWindow, PlannedRow};
use super::segment_builder::SegmentBuilder;
use super::work::WorkItem;
use crate::dead_letters::DeadLetter;
use crate::error::{Error, Result};
use crate::order::StoredRow;
use crate::segment::SegmentRequest;
use crate::stream::accountant::{ALL_ROWS, PlannedBatch};
use crate::stream::cursor::Cursor;

impl JobRun {
    /// Returns the stored rows of dead letters.
    ///
    /// # Errors
    /// Fails if a letter belongs to another pipeline, or its row no longer exists.
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

    /// Returns the work items that run the rows again.
    pub(super) fn replay(
        &self,
        rows: &[(StoredRow, DeadLetter)],
    ) -> datafusion::common::Result<Vec<WorkItem<SegmentRequest>>> {
        let mut building = SegmentBuilder::by_child(self.job.plan.multiplies);
        let mut items = vec![WorkItem::Begin(self.first_epoch)];
        let size = self.rules.ranks.batch.rows().unwrap_or(1).max(1) as usize;
        for (step, rows) in (0..).zip(rows.chunks(size)) {
            let mut windows = BTreeMap::new();
            for (id, (row, letter)) in (0..).zip(rows) {
                let window = ActiveWindow {
                    id,
                    index: 0,
                    pass: (letter.epoch, 0),
                    key: letter.pass,
                    window: self.job.split(row.split),
                };
                windows.insert(id, window);
                let row = PlannedRow {
                    row: *row,
                    stored: self.job.plan.data.snapshot.stored(*row),
                    nth: letter.child,
                    window: id,
                    pass: (letter.epoch, 0),
                };
                building.push_alone(&row, &windows)?;
            }
            let batch = PlannedBatch {
                epoch: rows.first().map_or(0, |(_, letter)| letter.epoch),
                step,
                rows: ALL_ROWS,
                packs: None,
                repeats: false,
                is_borrowed: false,
                units: None,
                cursor: Arc::new(Cursor::default()),
            };
            items.extend(building.cut(self.first_epoch, vec![batch]));
        }
        Ok(items)
    }
}
