//! Windows with the order of their rows, and segments of such windows.

use std::ops::Range;
use std::sync::Arc;

use datafusion::common::Result;
use forebay_planner::clauses::ShuffleWindow;

use super::lazy_window::LazyWindow;
use super::name::{RowRun, SegmentName, SegmentWindow};
use super::request::SegmentRequest;
use crate::order::{PassName, RowLocation, StoredRow};

/// A window with its rows in the order of a pass.
#[derive(Debug)]
pub(crate) struct OrderedWindow {
    pub(crate) name: SegmentWindow,
    /// Hash key of the pass that the window belongs to.
    pub(crate) key: u64,
    pub(crate) window: Arc<LazyWindow>,
    /// The rows of the window in order; empty if the window is used only for rows whose positions
    /// are unknown.
    pub(crate) rows: Arc<Vec<StoredRow>>,
    /// True if rows that pruning removed are not in `rows`.
    pub(crate) is_pruned: bool,
}

impl OrderedWindow {
    /// Returns the window with its rows in order, without the rows that pruning removes if `is_pruned` is
    /// true.
    ///
    /// # Errors
    /// Fails as [`LazyWindow::order`] does.
    pub(crate) async fn in_order(
        self,
        shuffle: Option<ShuffleWindow>,
        is_pruned: bool,
    ) -> Result<Self> {
        let rows = self.window.order(shuffle, self.key, is_pruned).await?;
        Ok(Self {
            rows: Arc::new(rows),
            is_pruned,
            ..self
        })
    }

    /// Returns the pass that the window belongs to, and the window's index in the order of the
    /// pass; `None` if the window is a split outside of any pass.
    pub(crate) const fn pass(&self) -> Option<(PassName, u32)> {
        match self.name {
            SegmentWindow::OfPass {
                epoch, pass, index, ..
            } => Some(((epoch, pass), index)),
            SegmentWindow::Split { .. } => None,
        }
    }
}

/// A segment that was planned or named, with its windows.
#[derive(Debug)]
pub(crate) struct OrderedSegment {
    /// The windows that contain the segment's rows.
    pub(crate) windows: Vec<Arc<OrderedWindow>>,
    /// The segment's stored rows, in the order of its output. Each run lies in its window.
    pub(crate) runs: Vec<RowRun>,
    /// For each stored row, the range of its output rows to keep; `None` to keep all output rows.
    pub(crate) wanted: Option<Vec<Range<u32>>>,
    pub(crate) by_child: bool,
    pub(crate) planned: Option<usize>,
}

/// The stored rows of a segment, in the order of its output.
#[derive(Debug, Default)]
pub(crate) struct SegmentRows {
    /// Each run, with the number of rows in the segment up to its end.
    runs: Vec<(u64, RunRows)>,
}

#[derive(Debug)]
enum RunRows {
    /// The rows of a window in order, and the position of the run's first row.
    Ordered(Arc<Vec<StoredRow>>, u32),
    Stored(StoredRow),
}

impl SegmentRows {
    /// Creates the rows of a segment that has the rows of a window in their order.
    #[cfg(test)]
    pub(crate) fn of_order(rows: &Arc<Vec<StoredRow>>) -> Self {
        let run = RunRows::Ordered(Arc::clone(rows), 0);
        Self {
            runs: vec![(rows.len() as u64, run)],
        }
    }

    /// Returns the row at `position`; `None` if the segment has fewer rows.
    pub(crate) fn get(&self, position: u64) -> Option<StoredRow> {
        let run = self.runs.partition_point(|(end, _)| *end <= position);
        let (_, rows) = self.runs.get(run)?;
        let begin = run.checked_sub(1).map_or(0, |before| self.runs[before].0);
        match rows {
            RunRows::Ordered(rows, start) => {
                let at = u64::from(*start) + (position - begin);
                rows.get(usize::try_from(at).ok()?).copied()
            }
            RunRows::Stored(row) => Some(*row),
        }
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> u64 {
        self.runs.last().map_or(0, |(end, _)| *end)
    }
}

impl OrderedSegment {
    /// Returns the stored rows without the windows that hold their values.
    pub(crate) fn rows(&self) -> SegmentRows {
        let mut end = 0;
        let runs = self.runs.iter().map(|run| {
            let (window, rows) = run.extent();
            end += u64::from(rows);
            let rows = match *run {
                RowRun::Ordered { start, .. } => {
                    let window = &self.windows[window as usize];
                    RunRows::Ordered(Arc::clone(&window.rows), start)
                }
                RowRun::Stored { split, offset, .. } => {
                    RunRows::Stored(StoredRow { split, offset })
                }
            };
            (end, rows)
        });
        SegmentRows {
            runs: runs.collect(),
        }
    }

    /// Returns the locations of the segment's rows. Their positions count from 0.
    pub(crate) fn places(&self) -> Vec<RowLocation> {
        let rows = self.runs.iter().map(|run| run.extent().1 as usize).sum();
        let mut places = Vec::with_capacity(rows);
        for run in &self.runs {
            let window = &self.windows[run.extent().0 as usize];
            match *run {
                RowRun::Ordered { start, rows, .. } => {
                    let rows = &window.rows[start as usize..][..rows as usize];
                    push_all(&mut places, rows.iter().copied(), window.key);
                }
                RowRun::Stored { split, offset, .. } => {
                    let row = StoredRow { split, offset };
                    push_all(&mut places, std::iter::once(row), window.key);
                }
            }
        }
        places
    }

    /// Returns true if it is known that pruning removed none of the stored rows.
    fn are_kept(&self) -> bool {
        self.runs.iter().all(|run| {
            let window = &self.windows[run.extent().0 as usize];
            matches!(run, RowRun::Ordered { .. }) && window.is_pruned
        })
    }

    /// Returns the request that reads and computes the segment in this process.
    pub(crate) fn request(self) -> SegmentRequest {
        SegmentRequest {
            places: self.places(),
            are_kept: self.are_kept(),
            windows: { self.windows.iter() }
                .map(|of| Arc::clone(&of.window))
                .collect(),
            wanted: self.wanted,
            by_child: self.by_child,
            planned: self.planned,
        }
    }

    /// Returns the name by which another process finds the segment.
    pub(crate) fn name(&self) -> SegmentName {
        SegmentName {
            windows: self.windows.iter().map(|of| of.name).collect(),
            runs: self.runs.clone(),
            wanted: self.wanted.clone(),
            by_child: self.by_child,
            planned: self.planned.map(|rows| rows as u64),
        }
    }
}

fn push_all(places: &mut Vec<RowLocation>, rows: impl Iterator<Item = StoredRow>, key: u64) {
    let first = places.len() as u64;
    places.extend(
        (first..)
            .zip(rows)
            .map(|(position, row)| row.at(position, key)),
    );
}
