//! An input of the stream. The input is read one pass at a time; a pass is one traversal of the
//! input. A pipeline without MIX has one input.

use std::ops::Range;
use std::sync::Arc;

use datafusion::common::{Result, exec_datafusion_err};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::job_run::JobRun;
use super::segment_builder::PlannedRow;
use crate::job::row_counts::RowCounts;
use crate::order::{PassName, Snapshot, StoredRow};
use crate::prefetch::ahead;
use crate::segment::OrderedWindow;
use crate::stream::cursor::InputCursor;

/// Number of windows of a pass that are ordered and staged concurrently: the current window and the
/// next window.
const WINDOWS_AHEAD: usize = 2;

/// Returns the windows of a pass over an input, each with its rows in order. The first window returned is the one at index `from`. If rows are counted as they are computed, each
/// window is staged before the rows are ordered. Otherwise, staging begins early only for a window
/// of at least `staged_from` rows.
fn windows(
    run: &Arc<JobRun>,
    input: usize,
    pass: PassName,
    from: u32,
    staged_from: u64,
) -> BoxStream<'static, Result<Arc<OrderedWindow>>> {
    let all = run.job.passes.windows(input, pass);
    let run = Arc::clone(run);
    let indices = stream::iter(from as usize..all.len());
    let prepare = move |index: usize| {
        let (run, splits) = (Arc::clone(&run), all[index].clone());
        async move {
            let window = run.job.window(input, pass, (index as u32, &splits));
            let is_pruned = run.orders_pruned();
            if !is_pruned && splits.rows >= staged_from {
                window.window.begin();
            }
            let ordered = window.in_order(run.job.clauses.shuffle, is_pruned);
            Ok(Arc::new(ordered.await?))
        }
    };
    ahead(indices, WINDOWS_AHEAD, prepare, Err).boxed()
}

/// An input during one pass, with the current position in that pass.
pub(super) struct StreamInput {
    snapshot: Arc<Snapshot>,
    pub(super) pass: PassName,
    /// Row counts of the pass; `None` if rows are not counted in advance.
    pub(super) counts: Option<Arc<RowCounts>>,
    windows: BoxStream<'static, Result<Arc<OrderedWindow>>>,
    /// Number in the run of the current window; `None` before the first window of the pass.
    pub(super) window: Option<u32>,
    /// The current window; `None` before the first window of the pass.
    current: Option<Arc<OrderedWindow>>,
    /// Position of the next row in the order of the current window.
    at: usize,
    /// Number of output rows that the next row has given so far.
    given: u32,
    /// The row to resume after, as (number of the stored row in the snapshot, number of its output
    /// rows already given). `None` if the pass begins at a window's start, or once the window of
    /// the row was entered.
    resume: Option<(u64, u32)>,
    /// Position in the input after the row that was taken last.
    pub(super) last: InputCursor,
    /// True if the pass has given a row.
    pub(super) gave: bool,
}

impl StreamInput {
    /// Opens an input at the beginning of a pass, or at the position of a cursor.
    pub(super) async fn open(
        run: &Arc<JobRun>,
        input: usize,
        epoch: u64,
        cursor: &InputCursor,
        staged_from: u64,
    ) -> Result<Self> {
        let pass = (epoch, cursor.pass);
        let from = cursor.window.unwrap_or(0);
        Ok(Self {
            snapshot: Arc::clone(&run.job.plan.data.snapshot),
            pass,
            counts: run.row_counts(pass).await?,
            windows: windows(run, input, pass, from, staged_from),
            window: None,
            current: None,
            at: 0,
            given: 0,
            resume: cursor.row,
            last: *cursor,
            gave: from > 0 || cursor.row.is_some(),
        })
    }

    fn rows(&self) -> &[StoredRow] {
        self.current.as_ref().map_or(&[], |window| &window.rows)
    }

    fn planned(&self, at: usize, nth: u32) -> PlannedRow {
        let row = self.rows()[at];
        PlannedRow {
            row,
            stored: self.snapshot.stored(row),
            nth,
            window: self.window.unwrap_or_default(),
            at: at as u32,
            pass: self.pass,
        }
    }

    /// Returns the next row without taking the row; `None` if the next window has to be entered
    /// first.
    pub(super) fn peek(&self) -> Option<PlannedRow> {
        (self.at < self.rows().len()).then(|| self.planned(self.at, self.given))
    }

    /// Takes `row`, which is the next row. `all` is the number of output rows that the stored row
    /// gives. If `all` is `None`, that number is unknown, and the input advances to the next stored
    /// row.
    pub(super) fn take(&mut self, row: &PlannedRow, all: Option<u32>) {
        self.given += 1;
        self.gave = true;
        self.last.row = Some((row.stored, self.given));
        if all.is_none_or(|all| self.given >= all) {
            self.leave();
        }
    }

    /// Takes at most `n` of the next stored rows of the window, each of which gives one row. Returns
    /// the number in the run of the window, and the positions of the rows in its order.
    pub(super) fn take_positions(&mut self, n: usize) -> (u32, Range<usize>) {
        let end = self.rows().len().min(self.at.saturating_add(n));
        let taken = self.at..end;
        if !taken.is_empty() {
            let last = self.planned(end - 1, 0);
            self.gave = true;
            self.last.row = Some((last.stored, 1));
        }
        self.at = end;
        (self.window.unwrap_or_default(), taken)
    }

    /// Takes rows like [`take_positions`](Self::take_positions), and returns the rows.
    pub(super) fn take_run(&mut self, n: usize) -> Vec<PlannedRow> {
        let (_, taken) = self.take_positions(n);
        taken.map(|at| self.planned(at, 0)).collect()
    }

    /// Advances to the next stored row, because the current stored row gives no more rows.
    pub(super) fn leave(&mut self) {
        self.at += 1;
        self.given = 0;
    }

    /// Enters the next window of the pass. Returns the window with its index in the order of the
    /// pass; `None` at the end of the pass.
    pub(super) async fn enter(&mut self) -> Result<Option<(u32, Arc<OrderedWindow>)>> {
        let Some(next) = self.windows.next().await else {
            return Ok(None);
        };
        let window = next?;
        let index = window.pass().map_or(0, |(_, index)| index);
        (self.current, self.at, self.given) = (Some(Arc::clone(&window)), 0, 0);
        match self.resume.take() {
            Some((stored, given)) => {
                let same = |row: &StoredRow| self.snapshot.stored(*row) == stored;
                let at = self.rows().iter().position(same).ok_or_else(|| {
                    exec_datafusion_err!(
                        "the resume token names row {stored}, which is not in window {index}"
                    )
                })?;
                (self.at, self.given) = (at, given);
            }
            None => self.last.row = None,
        }
        self.last.window = Some(index);
        Ok(Some((index, window)))
    }
}
