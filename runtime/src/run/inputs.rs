//! The inputs of a run, which are read in stream order: the inputs of MIX, or the only input.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::{Result, exec_datafusion_err, exec_err};
use forebay_planner::rows::mix::MixStop;

use super::input::StreamInput;
use super::job_run::JobRun;
use super::segment_builder::{NO_POSITION, PlannedRow};
use crate::order::{PassName, input_of_draw};
use crate::segment::OrderedWindow;
use crate::stream::accountant::StreamPoint;
use crate::stream::cursor::{CarriedRow, Cursor, InputCursor, InputPosition};

/// The positions of a run's inputs, and the windows that are in use: the point of the stream behind the
/// row that was taken last.
pub(super) struct Inputs {
    run: Arc<JobRun>,
    /// Minimum number of stored rows with which a window is staged ahead. Not used if rows are
    /// counted as they are computed, because every window is then staged ahead.
    pub(super) staged_from: u64,
    epoch: u64,
    pub(super) all: Vec<StreamInput>,
    /// For each input, the pass and the index of the window that the input entered last; `None`
    /// before the first window of that input.
    last_windows: Vec<Option<(PassName, u32)>>,
    /// The last epoch in which any input entered a window; `None` before the first window.
    entered_in: Option<u64>,
    /// Number of times that MIX has drawn an input so far in the epoch; 0 without MIX.
    drawn: u64,
    /// The current window of each input, and the windows that have rows not emitted yet. The key is
    /// the number of the window in the run.
    pub(super) windows: BTreeMap<u32, Arc<OrderedWindow>>,
    next_id: u32,
    /// True if the horizon was reached since the last [`take_horizon`](Self::take_horizon).
    horizon_reached: bool,
}

impl StreamPoint<PlannedRow> for Inputs {
    fn inputs(&self) -> InputPosition {
        self.position()
    }

    fn name(&self, row: &PlannedRow) -> crate::error::Result<CarriedRow> {
        Ok(row.carried())
    }
}

impl Inputs {
    pub(super) fn new(run: Arc<JobRun>) -> Self {
        Self {
            staged_from: run.staged_from(),
            epoch: run.first_epoch,
            all: Vec::new(),
            last_windows: Vec::new(),
            entered_in: None,
            drawn: 0,
            windows: BTreeMap::new(),
            next_id: 0,
            horizon_reached: false,
            run,
        }
    }

    /// Opens the inputs at the position of a cursor.
    pub(super) async fn open(&mut self, cursor: &Cursor) -> Result<()> {
        let epoch = cursor.epoch;
        (self.epoch, self.drawn) = (epoch, cursor.drawn);
        let last = cursor.arms.iter();
        let last = last.map(|input| Some(((epoch, input.pass), input.window?)));
        self.last_windows = last.collect();
        if self.last_windows.iter().any(Option::is_some) {
            self.entered_in = Some(epoch);
        }
        self.all.clear();
        for (input, at) in cursor.arms.iter().enumerate() {
            let input = StreamInput::open(&self.run, input, epoch, at, self.staged_from).await?;
            self.all.push(input);
        }
        Ok(())
    }

    /// Returns the current position in each input.
    pub(super) fn position(&self) -> InputPosition {
        InputPosition {
            drawn: self.drawn,
            inputs: self.all.iter().map(|input| input.last).collect(),
        }
    }

    /// Returns the index of the input that gives the next row.
    pub(super) fn draw(&self) -> usize {
        match self.run.job.mix() {
            Some(mix) => input_of_draw(mix, self.run.job.passes.key((self.epoch, 0)), self.drawn),
            None => 0,
        }
    }

    /// Counts one draw of MIX, after the drawn input has given a row. Does nothing without MIX.
    pub(super) fn note_drawn(&mut self) {
        self.drawn += u64::from(self.run.job.mix().is_some());
    }

    /// Returns true if the horizon was reached since the last call.
    pub(super) fn take_horizon(&mut self) -> bool {
        std::mem::take(&mut self.horizon_reached)
    }

    /// Makes an input enter the next window of its pass. Returns `false` if the pass has no more
    /// windows. `in_use` holds the numbers of the windows that have rows not emitted yet. Windows
    /// that are neither in use nor current are dropped.
    pub(super) async fn enter(&mut self, input: usize, mut in_use: Vec<u32>) -> Result<bool> {
        let Some((index, window)) = self.all[input].enter().await? else {
            return Ok(false);
        };
        let now = self.all[input].pass;
        let last = self.last_windows[input].replace((now, index));
        let entered_in = self.entered_in.replace(now.0);
        if let Some(horizon) = self.run.rules.grouping.horizon {
            let group = |index: u32| u64::from(index) / horizon;
            self.horizon_reached |= match last {
                Some((pass, before)) if pass == now => group(before) != group(index),
                Some((pass, _)) if pass.0 == now.0 => true,
                // The input enters its first window of this epoch. The horizon is reached if no
                // other input has entered a window of this epoch before.
                _ => entered_in != Some(now.0),
            };
        }
        self.all[input].window = Some(self.add(window));
        in_use.extend(self.all.iter().filter_map(|input| input.window));
        self.windows.retain(|id, _| in_use.contains(id));
        Ok(true)
    }

    /// Adds `window`, and returns the number of `window` in the run.
    fn add(&mut self, window: Arc<OrderedWindow>) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        self.windows.insert(id, window);
        id
    }

    /// Ends the current pass over an input that has no more rows, and begins the next pass over the
    /// input. Returns `false` if the epoch ends with the current pass.
    pub(super) async fn next_pass(&mut self, input: usize) -> Result<bool> {
        let stop = self.run.job.mix().map(|mix| mix.stop());
        let has_restarted = |(other, at): (usize, &StreamInput)| other == input || at.pass.1 > 0;
        if stop != Some(MixStop::Longest) || self.all.iter().enumerate().all(has_restarted) {
            return Ok(false);
        }
        if !self.all[input].gave {
            return exec_err!(
                "arm {} of MIX has no rows, so STOP => 'longest' would wait for it \
                 forever; remove the arm or add rows to it",
                input + 1
            );
        }
        let (epoch, pass) = self.all[input].pass;
        let beginning = InputCursor {
            pass: pass + 1,
            ..InputCursor::default()
        };
        self.all[input] =
            StreamInput::open(&self.run, input, epoch, &beginning, self.staged_from).await?;
        Ok(true)
    }

    /// Converts `carried`, a row that a cursor carries, to a planned row. Adds the row's window to
    /// `windows` if that window is missing.
    pub(super) fn picked(&mut self, carried: &CarriedRow) -> Result<PlannedRow> {
        let &CarriedRow { stored, nth, pass } = carried;
        let damaged = || {
            exec_datafusion_err!(
                "the resume token carries row {stored}, which the data does not have"
            )
        };
        let job = &self.run.job;
        let row = job.plan.data.snapshot.row(stored).ok_or_else(damaged)?;
        let mut known = self.windows.iter();
        let is_of_pass = |of: &OrderedWindow| of.pass().is_some_and(|(name, _)| name == pass);
        let known = known.find(|(_, of)| is_of_pass(of) && of.window.has(row.split));
        let window = match known {
            Some((&id, _)) => id,
            None => {
                let (input, index, splits) = job.passes.window_of(row, pass).ok_or_else(damaged)?;
                let window = job.window(input, pass, (index, &splits));
                self.add(Arc::new(window))
            }
        };
        Ok(PlannedRow {
            row,
            stored,
            nth,
            window,
            at: NO_POSITION,
            pass,
        })
    }
}
