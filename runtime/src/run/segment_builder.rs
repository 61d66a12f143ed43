//! Planned rows, and the builder that makes segments of planned rows.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use datafusion::common::{Result, internal_datafusion_err, internal_err};

use crate::order::{PassName, StoredRow};
use crate::segment::{OrderedSegment, OrderedWindow, RowRun};
use crate::stream::cursor::CarriedRow;

/// The position of a row that a cursor carries, or of a dead letter, in the order of its window.
pub(super) const NO_POSITION: u32 = u32::MAX;

/// An output row that is to be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlannedRow {
    pub(super) row: StoredRow,
    /// Number of the stored row in the snapshot.
    pub(super) stored: u64,
    /// Index of the row among the output rows that the stored row gives, from 0.
    pub(super) nth: u32,
    /// Number in this run of the window that the row belongs to.
    pub(super) window: u32,
    /// Position of the row in the order of its window; [`NO_POSITION`] if unknown.
    pub(super) at: u32,
    pub(super) pass: PassName,
}

impl PlannedRow {
    /// Returns the row's name in a cursor.
    pub(super) const fn carried(&self) -> CarriedRow {
        let &Self {
            stored, nth, pass, ..
        } = self;
        CarriedRow { stored, nth, pass }
    }
}

/// Collects the rows of a segment.
#[derive(Debug)]
pub(super) struct SegmentBuilder {
    /// Windows of the rows added so far, each with its number in the run.
    windows: Vec<(u32, Arc<OrderedWindow>)>,
    runs: Vec<RowRun>,
    wanted: Option<Vec<Range<u32>>>,
    /// The row that was added last. Consecutive output rows of one stored row share one row
    /// location. `None` if each stored row gives at most one row.
    pub(super) last: Option<PlannedRow>,
    rows: usize,
}

impl SegmentBuilder {
    pub(super) fn new(multiplies: bool) -> Self {
        Self {
            windows: Vec::new(),
            runs: Vec::new(),
            wanted: multiplies.then(Vec::new),
            last: None,
            rows: 0,
        }
    }

    /// Returns the number of rows added since the last segment. A range of output rows counts as
    /// one row.
    pub(super) const fn len(&self) -> usize {
        self.rows
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds `picked`, one of the output rows of a stored row. `windows` maps window numbers to
    /// windows.
    pub(super) fn push(
        &mut self,
        picked: &PlannedRow,
        windows: &BTreeMap<u32, Arc<OrderedWindow>>,
    ) -> Result<()> {
        self.push_range(picked, picked.nth..picked.nth.saturating_add(1), windows)
    }

    /// Adds the output rows with indices `rows` of the stored row of `picked`. `windows` maps
    /// window numbers to windows.
    pub(super) fn push_range(
        &mut self,
        picked: &PlannedRow,
        rows: Range<u32>,
        windows: &BTreeMap<u32, Arc<OrderedWindow>>,
    ) -> Result<()> {
        self.rows += 1;
        if let Some(wanted) = &mut self.wanted {
            let follows = self.last.is_some_and(|last| {
                (last.row, last.window, last.nth.wrapping_add(1))
                    == (picked.row, picked.window, picked.nth)
            });
            self.last = Some(*picked);
            match wanted.last_mut() {
                Some(range) if follows => {
                    range.end = rows.end;
                    return Ok(());
                }
                _ => wanted.push(rows),
            }
        }
        let window = self.index_of(picked.window, windows)?;
        if picked.at == NO_POSITION {
            let StoredRow { split, offset } = picked.row;
            self.runs.push(RowRun::Stored {
                window,
                split,
                offset,
            });
            return Ok(());
        }
        self.push_ordered(window, picked.at, 1);
        Ok(())
    }

    /// Adds the rows at `positions` in the order of the window with number `window` in the run. Each
    /// stored row gives at most one row.
    pub(super) fn push_positions(
        &mut self,
        window: u32,
        positions: Range<usize>,
        windows: &BTreeMap<u32, Arc<OrderedWindow>>,
    ) -> Result<()> {
        if self.wanted.is_some() {
            return internal_err!("rows whose outputs are counted are added one by one");
        }
        self.rows += positions.len();
        let window = self.index_of(window, windows)?;
        // `order` refuses windows of more than `u32::MAX` rows.
        self.push_ordered(window, positions.start as u32, positions.len() as u32);
        Ok(())
    }

    fn push_ordered(&mut self, window: u32, start: u32, rows: u32) {
        match self.runs.last_mut() {
            Some(RowRun::Ordered {
                window: of,
                start: first,
                rows: before,
            }) if *of == window && first.checked_add(*before) == Some(start) => *before += rows,
            _ => self.runs.push(RowRun::Ordered {
                window,
                start,
                rows,
            }),
        }
    }

    /// Returns the index in the segment of the window with number `window` in the run, and adds the
    /// window to the segment if necessary.
    fn index_of(
        &mut self,
        window: u32,
        windows: &BTreeMap<u32, Arc<OrderedWindow>>,
    ) -> Result<u32> {
        // The last row's window is tried first, because most rows belong to it.
        if let Some(last) = self.runs.last().map(|run| run.extent().0)
            && self.windows[last as usize].0 == window
        {
            return Ok(last);
        }
        if let Some(index) = self.windows.iter().position(|(of, _)| *of == window) {
            return Ok(index as u32);
        }
        let Some(entered) = windows.get(&window) else {
            return Err(internal_datafusion_err!("a row has no window"));
        };
        self.windows.push((window, Arc::clone(entered)));
        Ok(self.windows.len() as u32 - 1)
    }

    /// Returns the segment, and empties the builder.
    pub(super) fn take(&mut self) -> OrderedSegment {
        self.rows = 0;
        self.last = None;
        let windows = std::mem::take(&mut self.windows);
        OrderedSegment {
            windows: windows.into_iter().map(|(_, window)| window).collect(),
            runs: std::mem::take(&mut self.runs),
            wanted: self.wanted.as_mut().map(std::mem::take),
            by_child: false,
            planned: None,
        }
    }
}
