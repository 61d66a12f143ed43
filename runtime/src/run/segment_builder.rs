//! Planned rows, and the builder that makes segment requests from planned rows.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use datafusion::common::{Result, internal_datafusion_err};

use crate::job::OpenJob;
use crate::order::{PassName, RowLocation, StoredRow, WindowSplits};
use crate::segment::{LazyWindow, SegmentRequest};
use crate::stream::accountant::StreamRow;
use crate::stream::cursor::CarriedRow;

/// A window with rows that are not emitted yet.
#[derive(Debug)]
pub(super) struct ActiveWindow {
    /// Index of the window in the order of the pass.
    pub(super) index: u32,
    pub(super) pass: PassName,
    /// Hash key of the pass that the window belongs to.
    pub(super) key: u64,
    pub(super) window: Arc<LazyWindow>,
}

impl ActiveWindow {
    /// Returns a window of a pass over an input.
    pub(super) fn of_pass(
        job: &OpenJob,
        input: usize,
        pass: PassName,
        (index, splits): (u32, &WindowSplits),
    ) -> Self {
        Self {
            index,
            pass,
            key: job.passes.key(pass),
            window: job.window(input, pass, (index, splits)),
        }
    }
}

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
    pub(super) pass: PassName,
}

impl StreamRow for PlannedRow {
    fn carried(&self) -> CarriedRow {
        let &Self {
            stored, nth, pass, ..
        } = self;
        CarriedRow { stored, nth, pass }
    }
}

/// Collects the rows of a segment request.
#[derive(Debug)]
pub(super) struct SegmentBuilder {
    windows: BTreeMap<u32, Arc<LazyWindow>>,
    /// Locations of the rows added so far.
    pub(super) places: Vec<RowLocation>,
    wanted: Option<Vec<Range<u32>>>,
    /// The row that was added last. Consecutive output rows of one stored row share one row
    /// location. `None` if each stored row gives at most one row.
    pub(super) last: Option<PlannedRow>,
    /// Number of the window that the last row belongs to, and the hash key of the window's pass.
    window: Option<(u32, u64)>,
    /// Position of the next row location. Positions continue from one request to the next.
    position: u64,
    rows: usize,
}

impl SegmentBuilder {
    pub(super) fn new(multiplies: bool) -> Self {
        Self {
            windows: BTreeMap::new(),
            places: Vec::new(),
            wanted: multiplies.then(Vec::new),
            last: None,
            window: None,
            position: 0,
            rows: 0,
        }
    }

    /// Returns the number of rows added since the last request. A range of output rows counts as
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
        windows: &BTreeMap<u32, ActiveWindow>,
    ) -> Result<()> {
        self.push_range(picked, picked.nth..picked.nth.saturating_add(1), windows)
    }

    /// Adds the output rows with indices `rows` of the stored row of `picked`. `windows` maps
    /// window numbers to windows.
    pub(super) fn push_range(
        &mut self,
        picked: &PlannedRow,
        rows: Range<u32>,
        windows: &BTreeMap<u32, ActiveWindow>,
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
        let key = self.key_of(picked.window, windows)?;
        self.places.push(picked.row.at(self.position, key));
        self.position += 1;
        Ok(())
    }

    /// Returns the hash key of the pass that a window belongs to, and adds the window to the
    /// windows that the request reads.
    fn key_of(&mut self, window: u32, windows: &BTreeMap<u32, ActiveWindow>) -> Result<u64> {
        if let Some((last, key)) = self.window
            && last == window
        {
            return Ok(key);
        }
        let Some(entered) = windows.get(&window) else {
            return Err(internal_datafusion_err!("a row has no window"));
        };
        let read = self.windows.entry(window);
        read.or_insert_with(|| Arc::clone(&entered.window));
        self.window = Some((window, entered.key));
        Ok(entered.key)
    }

    /// Returns the request, and empties the builder.
    pub(super) fn take(&mut self) -> SegmentRequest {
        self.rows = 0;
        (self.last, self.window) = (None, None);
        SegmentRequest {
            windows: std::mem::take(&mut self.windows).into_values().collect(),
            places: std::mem::take(&mut self.places),
            wanted: self.wanted.as_mut().map(std::mem::take),
            by_child: false,
            planned: None,
        }
    }
}
