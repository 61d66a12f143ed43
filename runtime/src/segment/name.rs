//! Names of segments: pure data from which any process that has opened the same job finds the rows
//! of a segment.
//!
//! A name does not list stored rows. It lists windows, and positions in the order of each window,
//! so that it is small, and so that whoever computes the segment derives the rows from the job.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Name of a segment. The rows of a segment, and therefore its output, are a pure function of the
/// opened job and this name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentName {
    /// The windows that contain the segment's rows.
    pub(crate) windows: Vec<SegmentWindow>,
    /// The segment's stored rows, in the order of its output.
    pub(crate) runs: Vec<RowRun>,
    /// For each stored row, the range of its output rows to keep, counted from 0; `None` to keep
    /// all output rows.
    pub(crate) wanted: Option<Vec<Range<u32>>>,
    /// True if `wanted` counts all children that `unnest` makes of a stored row, including children
    /// that a filter above the `unnest` drops.
    pub(crate) by_child: bool,
    /// Number of output rows that were counted for this segment in advance; `None` if rows were not
    /// counted.
    pub(crate) planned: Option<u64>,
}

/// A window of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SegmentWindow {
    /// A window of a pass over an input. The order of its rows is that of the pass.
    OfPass {
        /// Index of the input.
        input: u32,
        /// Epoch of the pass.
        epoch: u64,
        /// Number of earlier passes over the input in the epoch.
        pass: u32,
        /// Index of the window in the order of the pass.
        index: u32,
    },
    /// The rows of a split, in stored order. Their draws are those of the pass with a given hash
    /// key, which a dead letter records.
    Split {
        /// Index into the snapshot's splits.
        split: u32,
        /// Hash key of the pass.
        key: u64,
    },
}

/// Consecutive rows of a segment that belong to the same window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RowRun {
    /// Rows that follow each other in the order of the window. Positions count all rows of the
    /// window, including rows that a scan prunes.
    Ordered {
        /// Index into the segment's windows.
        window: u32,
        /// Position of the first row.
        start: u32,
        /// Number of rows.
        rows: u32,
    },
    /// A single row whose position in its window is unknown: a row that a cursor carries, or a row
    /// of a dead letter.
    Stored {
        /// Index into the segment's windows.
        window: u32,
        /// Index into the snapshot's splits.
        split: u32,
        /// Index of the row among the split's rows.
        offset: u32,
    },
}

impl RowRun {
    /// Returns the index of the run's window, and the number of rows in the run.
    pub(crate) const fn extent(&self) -> (u32, u32) {
        match *self {
            Self::Ordered { window, rows, .. } => (window, rows),
            Self::Stored { window, .. } => (window, 1),
        }
    }

    /// Splits off the first `most` rows. Returns them, and the other rows if there are any.
    const fn split_at(self, most: u32) -> (Self, Option<Self>) {
        match self {
            Self::Ordered {
                window,
                start,
                rows,
            } if rows > most => {
                let first = Self::Ordered {
                    window,
                    start,
                    rows: most,
                };
                let rest = Self::Ordered {
                    window,
                    start: start + most,
                    rows: rows - most,
                };
                (first, Some(rest))
            }
            run => (run, None),
        }
    }
}

impl SegmentName {
    /// Returns the number of stored rows in the segment.
    pub fn rows(&self) -> u64 {
        let rows = self.runs.iter().map(|run| u64::from(run.extent().1));
        rows.fold(0, u64::saturating_add)
    }

    /// Splits the segment into pieces of at most `most` stored rows. The rows of the pieces, one
    /// piece after the other, are the rows of the segment; their positions count from the beginning
    /// of their piece.
    pub fn split(&self, most: u64) -> Vec<Self> {
        let most = most.clamp(1, u64::from(u32::MAX)) as u32;
        let mut pieces: Vec<Self> = Vec::new();
        let (mut room, mut row) = (0, 0);
        for run in &self.runs {
            let mut rest = Some(*run);
            while let Some(run) = rest {
                if room == 0 {
                    pieces.push(Self {
                        windows: self.windows.clone(),
                        runs: Vec::new(),
                        wanted: self.wanted.as_ref().map(|_| Vec::new()),
                        by_child: self.by_child,
                        planned: None,
                    });
                    room = most;
                }
                let (run, after) = run.split_at(room);
                rest = after;
                let rows = run.extent().1;
                room -= rows;
                let Some(piece) = pieces.last_mut() else {
                    break;
                };
                piece.runs.push(run);
                if let (Some(of), Some(wanted)) = (&mut piece.wanted, &self.wanted) {
                    let of_run = wanted.iter().skip(row).take(rows as usize);
                    of.extend(of_run.cloned());
                }
                row += rows as usize;
            }
        }
        if self.planned.is_some() {
            for piece in &mut pieces {
                piece.planned = Some(piece.output_rows());
            }
        }
        pieces
    }

    /// Returns the number of output rows if each of the wanted rows exists.
    fn output_rows(&self) -> u64 {
        match &self.wanted {
            Some(wanted) => wanted
                .iter()
                .map(|of| u64::from(of.end.saturating_sub(of.start)))
                .sum(),
            None => self.rows(),
        }
    }

    /// Returns the windows that contain the segment's rows, in the order of the stream.
    pub fn windows(&self) -> impl Iterator<Item = SegmentWindow> {
        self.windows.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: SegmentWindow = SegmentWindow::Split { split: 0, key: 1 };

    fn ordered(start: u32, rows: u32) -> RowRun {
        RowRun::Ordered {
            window: 0,
            start,
            rows,
        }
    }

    #[test]
    fn pieces_have_the_rows_of_their_segment() {
        let stored = RowRun::Stored {
            window: 0,
            split: 0,
            offset: 3,
        };
        let name = SegmentName {
            windows: vec![WINDOW],
            runs: vec![ordered(4, 5), stored, ordered(20, 3)],
            wanted: Some((0..9).map(|row| row..2 * row).collect()),
            by_child: false,
            planned: Some(36),
        };
        let pieces = name.split(4);
        let runs: Vec<_> = pieces.iter().map(|piece| piece.runs.clone()).collect();
        assert_eq!(
            runs,
            [
                vec![ordered(4, 4)],
                vec![ordered(8, 1), stored, ordered(20, 2)],
                vec![ordered(22, 1)],
            ]
        );
        let wanted = pieces
            .iter()
            .flat_map(|piece| piece.wanted.clone().unwrap());
        assert_eq!(wanted.collect::<Vec<_>>(), name.wanted.clone().unwrap());
        let planned: Vec<_> = pieces.iter().map(|piece| piece.planned).collect();
        assert_eq!(planned, [Some(6), Some(22), Some(8)]);
        assert_eq!(name.split(9), [name]);
    }
}
