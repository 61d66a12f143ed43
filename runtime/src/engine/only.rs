//! Parts of a stream by themselves: rows that failed, to be run again, and a batch of a step.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::Opened;
use super::arm::{Entered, Handle};
use super::work::{Building, Picked, Step, Work};
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::letters::DeadLetter;
use crate::order::{StoredRow, WindowSplits};
use crate::tail::{ALL, PlannedBatch};

/// What of a stream is run.
#[derive(Debug, Clone, Default)]
pub enum Only {
    /// All of it.
    #[default]
    All,
    /// These rows, each in the pass in which it failed, in batches of the pipeline's size without packs.
    Letters(Arc<Vec<DeadLetter>>),
    /// The batch of one step of an epoch.
    Step {
        /// The epoch.
        epoch: u64,
        /// The step in it (in the whole run under `CONTINUOUS`).
        step: u64,
    },
}

impl Opened {
    /// The rows of dead letters, where the data has them.
    ///
    /// # Errors
    /// Letters of another pipeline, or of a row that is not there any more.
    pub(super) fn letters(&self, letters: &[DeadLetter]) -> Result<Vec<(StoredRow, DeadLetter)>> {
        let snapshot = &self.job.snapshot;
        let mut rows = Vec::with_capacity(letters.len());
        for letter in letters {
            if letter.semantic_hash != self.name.semantic_hash {
                return Err(Error::Config(format!(
                    "the dead letters are of another pipeline, or of what this one was: semantic hash {}, now {}",
                    letter.semantic_hash, self.name.semantic_hash
                )));
            }
            let row = snapshot.find(letter.occurrence, &letter.file, letter.row);
            let row = row.ok_or_else(|| {
                Error::Config(format!(
                    "row {} of {}, which failed, is no longer there",
                    letter.row, letter.file
                ))
            })?;
            rows.push((row, letter.clone()));
        }
        Ok(rows)
    }

    /// The work of running rows again.
    pub(super) fn again(
        self: &Arc<Self>,
        rows: &[(StoredRow, DeadLetter)],
    ) -> datafusion::common::Result<BoxStream<'static, Step<Work>>> {
        let mut building = Building::by_child(self);
        let mut steps = VecDeque::from([Step::Begin(self.first_epoch)]);
        let size = self.deal.batch.rows().unwrap_or(1).max(1) as usize;
        let mut handles = BTreeMap::new();
        for (step, rows) in rows.chunks(size).enumerate() {
            let mut windows = BTreeMap::new();
            for (id, (row, letter)) in (0..).zip(rows) {
                let handle = handles.entry(row.split).or_insert_with(|| {
                    let rows = self.job.snapshot.splits[row.split as usize].rows;
                    let splits = vec![row.split];
                    Handle::new(self, WindowSplits { splits, rows })
                });
                let entered = Entered {
                    id,
                    index: 0,
                    pass: (letter.epoch, 0),
                    key: letter.pass,
                    handle: Arc::clone(handle),
                };
                windows.insert(id, entered);
                let picked = Picked {
                    row: *row,
                    nth: letter.child,
                    window: id,
                };
                building.push_alone(&picked, &windows)?;
            }
            building.planned.push(PlannedBatch {
                epoch: rows.first().map_or(0, |(_, letter)| letter.epoch),
                step: step as u64,
                rows: ALL,
                packs: None,
                repeats: false,
                is_borrowed: false,
                units: None,
                cursor: Arc::new(Cursor::default()),
            });
            steps.extend(building.cut(self.first_epoch));
        }
        Ok(stream::iter(steps).boxed())
    }
}
