//! The inputs of a run, read in stream order: the inputs of MIX, or the only input.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::{Result, exec_datafusion_err};
use forebay_planner::rows::mix::MixStop;

use super::input::StreamInput;
use super::job_run::JobRun;
use super::planned_row::{ActiveWindow, PlannedRow};
use super::row_count_source::CountingMode;
use crate::order::{PassName, input_of_draw};
use crate::stream::cursor::{CarriedRow, Cursor, InputCursor, InputPosition};

/// The positions of a run's inputs, and the windows that are in use.
#[derive(Debug)]
pub(super) struct Inputs {
    run: Arc<JobRun>,
    pub(super) reading: CountingMode,
    epoch: u64,
    inputs: Vec<StreamInput>,
    /// Pass and index of the window that each input entered last; `None` before its first window.
    last_windows: Vec<Option<(PassName, u32)>>,
    /// The epoch in which an input last entered a window.
    entered_in: Option<u64>,
    /// Number of inputs drawn in the epoch, under MIX.
    drawn: u64,
    /// Windows of the rows that are not emitted yet, by their number in the run.
    pub(super) windows: BTreeMap<u32, ActiveWindow>,
    next_id: u32,
    /// True if the horizon was reached since the last [`take_horizon`](Self::take_horizon).
    horizon_reached: bool,
}

impl Inputs {
    pub(super) fn new(run: Arc<JobRun>, reading: CountingMode) -> Self {
        Self {
            reading,
            epoch: run.first_epoch,
            inputs: Vec::new(),
            last_windows: Vec::new(),
            entered_in: None,
            drawn: 0,
            windows: BTreeMap::new(),
            next_id: 0,
            horizon_reached: false,
            run,
        }
    }

    /// Opens the inputs at the beginning of an epoch.
    pub(super) async fn open(&mut self, epoch: u64) -> Result<()> {
        let inputs = self.run.job.passes.inputs();
        (self.epoch, self.drawn) = (epoch, 0);
        self.last_windows = vec![None; inputs];
        self.open_at(&vec![InputCursor::beginning(0); inputs]).await
    }

    /// Opens the inputs at the position of a cursor.
    pub(super) async fn resume(&mut self, cursor: &Cursor) -> Result<()> {
        (self.epoch, self.drawn) = (cursor.epoch, cursor.drawn);
        let last = cursor.arms.iter();
        let last = last.map(|input| Some(((cursor.epoch, input.pass), input.window?)));
        self.last_windows = last.collect();
        let has_entered = self.last_windows.iter().any(Option::is_some);
        self.entered_in = has_entered.then_some(cursor.epoch);
        self.open_at(&cursor.arms).await
    }

    async fn open_at(&mut self, at: &[InputCursor]) -> Result<()> {
        self.inputs.clear();
        for (input, cursor) in at.iter().enumerate() {
            let input =
                StreamInput::open(&self.run, input, self.epoch, cursor, self.reading).await?;
            self.inputs.push(input);
        }
        Ok(())
    }

    /// Returns the positions of the inputs.
    pub(super) fn position(&self) -> InputPosition {
        InputPosition {
            drawn: self.drawn,
            inputs: self.inputs.iter().map(StreamInput::cursor).collect(),
        }
    }

    /// Returns the index of the input that gives the next row.
    pub(super) fn draw(&self) -> usize {
        match self.run.job.mix() {
            Some(mix) => input_of_draw(mix, self.run.job.passes.key((self.epoch, 0)), self.drawn),
            None => 0,
        }
    }

    /// Records that the drawn input has given a row.
    pub(super) fn note_drawn(&mut self) {
        self.drawn += u64::from(self.run.job.mix().is_some());
    }

    pub(super) fn input(&self, input: usize) -> &StreamInput {
        &self.inputs[input]
    }

    pub(super) fn input_mut(&mut self, input: usize) -> &mut StreamInput {
        &mut self.inputs[input]
    }

    /// Returns true if the horizon was reached since the last call.
    pub(super) fn take_horizon(&mut self) -> bool {
        std::mem::take(&mut self.horizon_reached)
    }

    /// Makes an input enter its next window; returns `false` if it has none. `held` returns the
    /// windows of rows that are not emitted yet.
    pub(super) async fn enter(
        &mut self,
        input: usize,
        held: impl Fn() -> Vec<u32>,
    ) -> Result<bool> {
        let run = Arc::clone(&self.run);
        if !self.inputs[input].enter(&run, self.next_id).await? {
            return Ok(false);
        }
        self.next_id += 1;
        let current = self.inputs.iter().filter_map(|input| input.window.as_ref());
        let mut in_use = held();
        in_use.extend(current.map(|window| window.id));
        self.windows.retain(|id, _| in_use.contains(id));
        let Some(now) = self.inputs[input].window.clone() else {
            return Ok(true);
        };
        let last = self.last_windows[input].replace((now.pass, now.index));
        let entered_in = self.entered_in.replace(now.pass.0);
        if let Some(horizon) = run.rules.grouping.horizon {
            let group = |index: u32| u64::from(index) / horizon;
            self.horizon_reached |= match last {
                Some((pass, index)) if pass == now.pass => group(index) != group(now.index),
                Some((pass, _)) if pass.0 == now.pass.0 => true,
                // The first window that any input enters in an epoch completes the groups of the
                // previous epoch, once.
                _ => entered_in != Some(now.pass.0),
            };
        }
        self.windows.insert(now.id, now);
        Ok(true)
    }

    /// Ends the current pass over an input that has no more rows, and begins its next pass. Returns
    /// `false` if the epoch ends with this pass.
    pub(super) async fn next_pass(&mut self, input: usize) -> Result<bool> {
        let stop = self.run.job.mix().map(|mix| mix.stop());
        let (epoch, pass) = self.inputs[input].pass;
        let all_have_restarted =
            |(other, at): (usize, &StreamInput)| other == input || at.pass.1 > 0;
        let ends = stop != Some(MixStop::Longest) || { self.inputs.iter().enumerate() }
            .all(all_have_restarted);
        if ends {
            return Ok(false);
        }
        if self.inputs[input].is_empty() {
            return Err(exec_datafusion_err!(
                "arm {} of MIX has no rows, so STOP => 'longest' would wait for it \
                 forever; remove the arm or add rows to it",
                input + 1
            ));
        }
        let beginning = InputCursor::beginning(pass + 1);
        self.inputs[input] =
            StreamInput::open(&self.run, input, epoch, &beginning, self.reading).await?;
        Ok(true)
    }

    /// Returns the planned row for a row that a cursor carries, in the window that it came from.
    pub(super) fn picked(&mut self, carried: &CarriedRow) -> Result<PlannedRow> {
        let &CarriedRow { stored, nth, pass } = carried;
        let damaged = || {
            exec_datafusion_err!(
                "the resume token carries row {stored}, which the data does not have"
            )
        };
        let row = self
            .run
            .job
            .plan
            .data
            .snapshot
            .row(stored)
            .ok_or_else(damaged)?;
        let mut known = self.windows.values();
        let known = known.find(|window| window.pass == pass && window.window.has(row.split));
        let window = match known {
            Some(window) => window.id,
            None => {
                let id = self.next_id;
                let job = &self.run.job;
                let (input, index, splits) = job.passes.window_of(row, pass).ok_or_else(damaged)?;
                let window = ActiveWindow {
                    id,
                    index,
                    pass,
                    key: job.passes.key(pass),
                    window: job.window(input, pass, (index, &splits)),
                };
                self.next_id += 1;
                self.windows.insert(id, window);
                id
            }
        };
        Ok(PlannedRow {
            row,
            stored,
            nth,
            window,
            pass,
        })
    }
}
