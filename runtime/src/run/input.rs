//! An input of the stream, read one pass at a time. A pass is one traversal of the input; a
//! pipeline without MIX has one input.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::job_run::JobRun;
use super::planned_row::ActiveWindow;
use super::row_count_source::CountingMode;
use crate::job::OpenJob;
use crate::job::row_counts::RowCounts;
use crate::order::{PassName, Snapshot, StoredRow, WindowSplits};
use crate::prefetch::ahead;
use crate::segment::LazyWindow;
use crate::stream::cursor::InputCursor;

/// Number of windows of a pass that are ordered and staged at a time: the current one and the next.
const WINDOWS_AHEAD: usize = 2;

/// A window with its rows in the order of the pass.
#[derive(Debug)]
pub(super) struct OrderedWindow {
    /// Index of the window in the order of the pass.
    pub(super) index: u32,
    pub(super) window: Arc<LazyWindow>,
    pub(super) rows: Vec<StoredRow>,
}

/// Returns the windows of a pass over an input in order, beginning with the one at index `from`.
fn windows(
    job: &Arc<OpenJob>,
    input: usize,
    pass: PassName,
    from: u32,
    mode: CountingMode,
) -> BoxStream<'static, Result<OrderedWindow>> {
    let all = job.passes.windows(input, pass);
    let job = Arc::clone(job);
    let indices = stream::iter(from as usize..all.len());
    let prepare = move |index: usize| {
        let (job, splits) = (Arc::clone(&job), all[index].clone());
        async move { prepare(&job, input, pass, (index as u32, &splits), mode).await }
    };
    ahead(indices, WINDOWS_AHEAD, prepare, Err).boxed()
}

/// Orders the rows of a window. Stages the window first, or starts to stage it.
async fn prepare(
    job: &OpenJob,
    input: usize,
    pass: PassName,
    (index, splits): (u32, &WindowSplits),
    mode: CountingMode,
) -> Result<OrderedWindow> {
    let window = job.window(input, pass, (index, splits));
    let is_pruned = match mode {
        // Rows that pruning removes need not be ordered.
        CountingMode::Counted => true,
        CountingMode::Planned(least) => {
            if splits.rows >= least {
                window.begin();
            }
            false
        }
    };
    let key = job.passes.key(pass);
    let rows = window.order(job.clauses.shuffle, key, is_pruned).await?;
    Ok(OrderedWindow {
        index,
        window,
        rows,
    })
}

/// The position of a pass over an input.
pub(super) struct StreamInput {
    pub(super) pass: PassName,
    /// Row counts of the pass; `None` if rows are not counted in advance.
    pub(super) counts: Option<Arc<RowCounts>>,
    windows: BoxStream<'static, Result<OrderedWindow>>,
    /// The current window; `None` before the first one.
    pub(super) window: Option<ActiveWindow>,
    rows: Vec<StoredRow>,
    at: usize,
    /// Number of output rows that the stored row at index `at` of `rows` has given.
    given: u32,
    /// The row to resume after, until its window is entered.
    resume: Option<(u64, u32)>,
    /// Position after the last row that was taken.
    last: InputCursor,
    /// True if the pass has given a row.
    gave: bool,
}

impl fmt::Debug for StreamInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamInput")
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl StreamInput {
    /// Opens an input at the beginning of a pass, or at the position of a cursor.
    pub(super) async fn open(
        run: &Arc<JobRun>,
        input: usize,
        epoch: u64,
        cursor: &InputCursor,
        mode: CountingMode,
    ) -> Result<Self> {
        let pass = (epoch, cursor.pass);
        Ok(Self {
            pass,
            counts: run.row_counts(pass).await?,
            windows: windows(&run.job, input, pass, cursor.window.unwrap_or(0), mode),
            window: None,
            rows: Vec::new(),
            at: 0,
            given: 0,
            resume: cursor.row,
            last: *cursor,
            gave: cursor.window.unwrap_or(0) > 0 || cursor.row.is_some(),
        })
    }

    /// Returns the position after the last row that was taken.
    pub(super) const fn cursor(&self) -> InputCursor {
        self.last
    }

    /// Returns the next stored row, and how many output rows it has given; `None` if the next
    /// window has to be entered first.
    pub(super) fn peek(&self) -> Option<(StoredRow, u32)> {
        Some((*self.rows.get(self.at)?, self.given))
    }

    /// Takes `n` of the output rows that the next stored row gives. `all` is the number of its
    /// output rows; `None` means that it is unknown, and that the stored row is complete with
    /// these.
    pub(super) fn take(&mut self, stored: u64, n: u32, all: Option<u32>) {
        self.given += n;
        self.gave = true;
        self.last.row = Some((stored, self.given));
        if all.is_none_or(|all| self.given >= all) {
            self.at += 1;
            self.given = 0;
        }
    }

    /// Takes at most `n` of the next stored rows of the window, each of which gives one row.
    pub(super) fn take_run(&mut self, n: usize, snapshot: &Snapshot) -> &[StoredRow] {
        let end = self.rows.len().min(self.at.saturating_add(n));
        let run = &self.rows[self.at..end];
        if let Some(last) = run.last() {
            self.gave = true;
            self.last.row = Some((snapshot.stored(*last), 1));
        }
        self.at = end;
        run
    }

    /// Skips the next stored row, which gives no more rows.
    pub(super) fn leave(&mut self) {
        self.at += 1;
        self.given = 0;
    }

    /// Returns true if the pass has given no row.
    pub(super) fn is_empty(&self) -> bool {
        !self.gave
    }

    /// Enters the next window; returns `false` at the end of the pass.
    pub(super) async fn enter(&mut self, run: &JobRun, id: u32) -> Result<bool> {
        let Some(next) = self.windows.next().await else {
            return Ok(false);
        };
        let OrderedWindow {
            index,
            window,
            rows,
        } = next?;
        self.rows = rows;
        (self.at, self.given) = (0, 0);
        match self.resume.take() {
            Some((stored, given)) => {
                let snapshot = &run.job.plan.data.snapshot;
                let same = |row: &StoredRow| snapshot.stored(*row) == stored;
                let Some(at) = self.rows.iter().position(same) else {
                    return Err(datafusion::common::exec_datafusion_err!(
                        "the resume token names row {stored}, which is not in window {index}"
                    ));
                };
                (self.at, self.given) = (at, given);
            }
            None => self.last.row = None,
        }
        self.last.window = Some(index);
        self.window = Some(ActiveWindow {
            id,
            index,
            pass: self.pass,
            key: run.job.passes.key(self.pass),
            window,
        });
        Ok(true)
    }
}
