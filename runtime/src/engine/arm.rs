//! An arm: one input of the stream, a pass over it at a time. A pipeline without MIX has one.

use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use forebay_planner::clauses::Window as Shuffle;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::OnceCell;

use super::Opened;
use super::facts::Facts;
use crate::cursor::ArmCursor;
use crate::job::{Env, Job};
use crate::order::{self, StoredRow, WindowSplits};
use crate::snapshot::Snapshot;
use crate::task;
use crate::window::{Window, stage};

/// A window that is read when its rows are needed, or ahead of that.
#[derive(Debug)]
pub(super) struct Handle {
    inner: Arc<Inner>,
    ahead: OnceLock<SpawnedTask<()>>,
}

struct Inner {
    job: Arc<Job>,
    env: Env,
    splits: WindowSplits,
    window: OnceCell<Arc<Window>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl Inner {
    async fn get(&self) -> Result<Arc<Window>> {
        let staged = async || {
            stage(&self.job, &self.job.reader, &self.splits, &self.env)
                .await
                .map(Arc::new)
        };
        self.window.get_or_try_init(staged).await.map(Arc::clone)
    }
}

impl Handle {
    pub(super) fn new(opened: &Opened, splits: WindowSplits) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::new(Inner {
                job: Arc::clone(&opened.job),
                env: opened.env.clone(),
                splits,
                window: OnceCell::new(),
            }),
            ahead: OnceLock::new(),
        })
    }

    /// A window of an arm.
    pub(super) fn of(opened: &Opened, arm: usize, splits: &WindowSplits) -> Arc<Self> {
        let fresh = || Self::new(opened, splits.clone());
        match opened.clauses.shuffle {
            // One window of every split: its rows are read once for all epochs.
            Some(Shuffle::Global) => Arc::clone(opened.global[arm].get_or_init(fresh)),
            _ => fresh(),
        }
    }

    /// The window, read.
    pub(super) async fn get(&self) -> Result<Arc<Window>> {
        self.inner.get().await
    }

    /// Whether a split belongs to the window.
    pub(super) fn has(&self, split: u32) -> bool {
        self.inner.splits.splits.contains(&split)
    }

    /// Begins to read the window. An error comes up when it is needed.
    fn begin(&self) {
        self.ahead.get_or_init(|| {
            let inner = Arc::clone(&self.inner);
            task::owned(async move { drop(inner.get().await) })
        });
    }
}

/// A window whose rows are in the order of the pass.
#[derive(Debug)]
pub(super) struct Ordered {
    /// Its index in the order of the pass.
    pub(super) index: u32,
    pub(super) handle: Arc<Handle>,
    pub(super) rows: Vec<StoredRow>,
}

/// Names a pass over an arm: the epoch, and passes over the arm that the epoch completed before.
pub(super) type PassName = (u64, u32);

/// The epoch that a pass over an arm counts as: what keys its draws. The first pass of an epoch counts as
/// the epoch.
pub(super) const fn pass_epoch((epoch, pass): PassName) -> u64 {
    epoch.wrapping_add((pass as u64) << 40)
}

/// How windows of an arm are gone about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Rows are known before they are read; a window is read ahead where it surely has rows of this rank: where it
    /// has at least so many.
    Planned(u64),
    /// Rows are counted as they come: a window is read before its rows are ordered.
    Counted,
}

/// The windows of a pass over an arm, from one of them on, in order; one is prepared ahead.
pub(super) fn windows(
    opened: &Arc<Opened>,
    arm: usize,
    pass: PassName,
    from: u32,
    reading: Reading,
) -> BoxStream<'static, Result<Ordered>> {
    let key = opened.pass_key(pass);
    let all = opened.arm_windows(arm, pass);
    let opened = Arc::clone(opened);
    stream::iter((0..).zip(all).skip(from as usize))
        .map(move |(index, splits)| {
            let opened = Arc::clone(&opened);
            async move { prepare(&opened, arm, index, splits, key, reading).await }
        })
        .buffered(2)
        .boxed()
}

async fn prepare(
    opened: &Arc<Opened>,
    arm: usize,
    index: u32,
    splits: WindowSplits,
    key: u64,
    reading: Reading,
) -> Result<Ordered> {
    let shuffle = opened.clauses.shuffle;
    let handle = Handle::of(opened, arm, &splits);
    let staged = match reading {
        // What pruning leaves out need not be ordered.
        Reading::Counted => Some(handle.get().await?),
        Reading::Planned(least) => {
            if splits.rows >= least {
                handle.begin();
            }
            None
        }
    };
    // Ordering millions of keys is no work for a thread that serves I/O.
    let (job, pool) = (Arc::clone(&opened.job), opened.env.pool.clone());
    let limit = opened.env.order_limit();
    let rows = pool.run(move || {
        let snapshot = &job.snapshot;
        let kept = |split| {
            staged
                .as_ref()
                .and_then(|staged| staged.kept(snapshot, split))
        };
        order::order(snapshot, &splits, shuffle, key, limit, kept)
    });
    Ok(Ordered {
        index,
        handle,
        rows: rows.await?,
    })
}

/// A window that an arm is in, known by a number of its own.
#[derive(Debug, Clone)]
pub(super) struct Entered {
    /// Names the window in this run.
    pub(super) id: u32,
    pub(super) index: u32,
    pub(super) pass: PassName,
    /// Key of the pass.
    pub(super) key: u64,
    pub(super) handle: Arc<Handle>,
}

/// Where a pass over an arm stands.
pub(super) struct Arm {
    pub(super) pass: PassName,
    /// What is known of its rows.
    pub(super) facts: Option<Arc<Facts>>,
    windows: BoxStream<'static, Result<Ordered>>,
    /// The window it is in, if it entered one.
    pub(super) window: Option<Entered>,
    rows: Vec<StoredRow>,
    at: usize,
    /// Rows that the row at `at` has given.
    given: u32,
    /// The row to go on behind, once its window is there.
    resume: Option<(u64, u32)>,
    /// The last row that came.
    last: ArmCursor,
    /// Whether the pass gave a row.
    gave: bool,
}

impl fmt::Debug for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arm")
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl Arm {
    /// A pass over an arm that begins, or goes on where a cursor says.
    pub(super) async fn open(
        opened: &Arc<Opened>,
        arm: usize,
        epoch: u64,
        cursor: &ArmCursor,
        reading: Reading,
    ) -> Result<Self> {
        let pass = (epoch, cursor.pass);
        Ok(Self {
            pass,
            facts: opened.facts(pass).await?,
            windows: windows(opened, arm, pass, cursor.window.unwrap_or(0), reading),
            window: None,
            rows: Vec::new(),
            at: 0,
            given: 0,
            resume: cursor.row,
            last: *cursor,
            gave: cursor.window.unwrap_or(0) > 0 || cursor.row.is_some(),
        })
    }

    /// Where it stands.
    pub(super) const fn cursor(&self) -> ArmCursor {
        self.last
    }

    /// The row that comes next, and how many rows it has given; `None` where the next window has to be entered.
    pub(super) fn peek(&self) -> Option<(StoredRow, u32)> {
        Some((*self.rows.get(self.at)?, self.given))
    }

    /// Takes `n` of the rows that the next stored row gives, of `all` (`None`: whatever it gives).
    pub(super) fn take(&mut self, stored: u64, n: u32, all: Option<u32>) {
        self.given += n;
        self.gave = true;
        self.last.row = Some((stored, self.given));
        if all.is_none_or(|all| self.given >= all) {
            self.at += 1;
            self.given = 0;
        }
    }

    /// Takes at most `n` of the next rows of the window, each of which gives one row.
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

    /// Leaves out the next stored row, which gives no rows (any more).
    pub(super) fn leave(&mut self) {
        self.at += 1;
        self.given = 0;
    }

    /// Whether the pass ended without a row.
    pub(super) fn is_empty(&self) -> bool {
        !self.gave
    }

    /// Enters the next window; `false` at the end of the pass.
    pub(super) async fn enter(&mut self, opened: &Opened, id: u32) -> Result<bool> {
        let Some(next) = self.windows.next().await else {
            return Ok(false);
        };
        let Ordered {
            index,
            handle,
            rows,
        } = next?;
        self.rows = rows;
        (self.at, self.given) = (0, 0);
        match self.resume.take() {
            Some((stored, given)) => {
                let snapshot = &opened.job.snapshot;
                let same = |row: &StoredRow| snapshot.stored(*row) == stored;
                let Some(at) = self.rows.iter().position(same) else {
                    return Err(datafusion::common::exec_datafusion_err!(
                        "the resume token names row {stored}, which window {index} does not have"
                    ));
                };
                (self.at, self.given) = (at, given);
            }
            None => self.last.row = None,
        }
        self.last.window = Some(index);
        self.window = Some(Entered {
            id,
            index,
            pass: self.pass,
            key: opened.pass_key(self.pass),
            handle,
        });
        Ok(true)
    }
}
