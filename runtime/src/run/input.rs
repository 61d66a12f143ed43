//! An input of the stream, read one pass at a time. A pass is one traversal of the input; a
//! pipeline without MIX has one input.

use std::sync::Arc;

use datafusion::common::{Result, exec_datafusion_err};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::job_run::JobRun;
use super::segment_builder::{ActiveWindow, PlannedRow};
use crate::job::row_counts::RowCounts;
use crate::order::{PassName, Snapshot, StoredRow};
use crate::prefetch::ahead;
use crate::stream::cursor::InputCursor;

/// Number of windows of a pass that are ordered and staged at a time: the current one and the next.
const WINDOWS_AHEAD: usize = 2;

/// Returns the windows of a pass over an input, each with its rows in order, beginning with the window
/// at index `from`. A window is staged before its rows are ordered if rows are counted as they are
/// computed; otherwise, it begins to be staged if it has at least `staged_from` rows.
fn windows(
    run: &Arc<JobRun>,
    input: usize,
    pass: PassName,
    from: u32,
    staged_from: u64,
) -> BoxStream<'static, Result<(ActiveWindow, Vec<StoredRow>)>> {
    let all = run.job.passes.windows(input, pass);
    let run = Arc::clone(run);
    let indices = stream::iter(from as usize..all.len());
    let prepare = move |index: usize| {
        let (run, splits) = (Arc::clone(&run), all[index].clone());
        async move {
            let window = ActiveWindow::of_pass(&run.job, input, pass, (index as u32, &splits));
            // Rows that pruning removes need not be ordered.
            let is_pruned = run.is_counted();
            if !is_pruned && splits.rows >= staged_from {
                window.window.begin();
            }
            let shuffle = run.job.clauses.shuffle;
            let rows = window.window.order(shuffle, window.key, is_pruned).await?;
            Ok((window, rows))
        }
    };
    ahead(indices, WINDOWS_AHEAD, prepare, Err).boxed()
}

/// The position of a pass over an input.
pub(super) struct StreamInput {
    snapshot: Arc<Snapshot>,
    pub(super) pass: PassName,
    /// Row counts of the pass; `None` if rows are not counted in advance.
    pub(super) counts: Option<Arc<RowCounts>>,
    windows: BoxStream<'static, Result<(ActiveWindow, Vec<StoredRow>)>>,
    /// Number in the run of the current window; `None` before the first one.
    pub(super) window: Option<u32>,
    rows: Vec<StoredRow>,
    at: usize,
    /// Number of output rows that the stored row at index `at` of `rows` has given.
    given: u32,
    /// The row to resume after, until its window is entered.
    resume: Option<(u64, u32)>,
    /// Position after the last row that was taken.
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
            rows: Vec::new(),
            at: 0,
            given: 0,
            resume: cursor.row,
            last: *cursor,
            gave: from > 0 || cursor.row.is_some(),
        })
    }

    fn planned(&self, row: StoredRow, nth: u32) -> PlannedRow {
        PlannedRow {
            row,
            stored: self.snapshot.stored(row),
            nth,
            window: self.window.unwrap_or_default(),
            pass: self.pass,
        }
    }

    /// Returns the next row; `None` if the next window has to be entered first.
    pub(super) fn peek(&self) -> Option<PlannedRow> {
        Some(self.planned(*self.rows.get(self.at)?, self.given))
    }

    /// Takes the next row. `all` is the number of output rows of its stored row; `None` means that
    /// it is unknown, and that the stored row is complete with this row.
    pub(super) fn take(&mut self, row: &PlannedRow, all: Option<u32>) {
        self.given += 1;
        self.gave = true;
        self.last.row = Some((row.stored, self.given));
        if all.is_none_or(|all| self.given >= all) {
            self.leave();
        }
    }

    /// Takes at most `n` of the next stored rows of the window, each of which gives one row.
    pub(super) fn take_run(&mut self, n: usize) -> Vec<PlannedRow> {
        let end = self.rows.len().min(self.at.saturating_add(n));
        let run = self.rows[self.at..end].iter();
        let run: Vec<_> = run.map(|&row| self.planned(row, 0)).collect();
        if let Some(last) = run.last() {
            self.gave = true;
            self.last.row = Some((last.stored, 1));
        }
        self.at = end;
        run
    }

    /// Skips the next stored row, which gives no more rows.
    pub(super) fn leave(&mut self) {
        self.at += 1;
        self.given = 0;
    }

    /// Enters the next window, and returns it; `None` at the end of the pass.
    pub(super) async fn enter(&mut self) -> Result<Option<ActiveWindow>> {
        let Some(next) = self.windows.next().await else {
            return Ok(None);
        };
        let (window, rows) = next?;
        (self.rows, self.at, self.given) = (rows, 0, 0);
        match self.resume.take() {
            Some((stored, given)) => {
                let same = |row: &StoredRow| self.snapshot.stored(*row) == stored;
                let at = self.rows.iter().position(same).ok_or_else(|| {
                    exec_datafusion_err!(
                        "the resume token names row {stored}, which is not in window {}",
                        window.index
                    )
                })?;
                (self.at, self.given) = (at, given);
            }
            None => self.last.row = None,
        }
        self.last.window = Some(window.index);
        Ok(Some(window))
    }
}
