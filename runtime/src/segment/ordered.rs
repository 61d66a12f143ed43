//! Windows with the order of their rows, and segments of such windows.

use std::ops::Range;
use std::sync::Arc;

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
    pub(crate) rows: Vec<StoredRow>,
}

impl OrderedWindow {
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

impl OrderedSegment {
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

    /// Returns the request that reads and computes the segment in this process.
    pub(crate) fn request(self) -> SegmentRequest {
        SegmentRequest {
            places: self.places(),
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
