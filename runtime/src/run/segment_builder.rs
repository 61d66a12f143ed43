//! Builder of segment requests, row by row.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use datafusion::common::{Result, internal_datafusion_err};

use super::planned_row::{ActiveWindow, PlannedRow};
use super::work::{Delivery, WorkItem};
use crate::order::{RowLocation, StoredRow};
use crate::segment::{LazyWindow, SegmentRequest};
use crate::stream::accountant::PlannedBatch;

/// Collects the rows of a segment request.
#[derive(Debug)]
pub(super) struct SegmentBuilder {
    windows: BTreeMap<u32, Arc<LazyWindow>>,
    places: Vec<RowLocation>,
    wanted: Option<Vec<Range<u32>>>,
    /// The row that was added last; `None` if each stored row gives at most one row.
    last: Option<PlannedRow>,
    /// Number of the window that the last row belongs to, and the key of the window's pass.
    window: Option<(u32, u64)>,
    /// Position of the next row location.
    position: u64,
    rows: usize,
    by_child: bool,
}

impl SegmentBuilder {
    /// Creates a builder that selects rows by their ordinals in `unnest`.
    pub(super) fn by_child(multiplies: bool) -> Self {
        Self {
            by_child: true,
            ..Self::new(multiplies)
        }
    }

    pub(super) fn new(multiplies: bool) -> Self {
        Self {
            windows: BTreeMap::new(),
            places: Vec::new(),
            wanted: multiplies.then(Vec::new),
            last: None,
            window: None,
            position: 0,
            rows: 0,
            by_child: false,
        }
    }

    /// Returns the number of rows.
    pub(super) const fn len(&self) -> usize {
        self.rows
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds one of the rows that a stored row gives.
    pub(super) fn push(
        &mut self,
        picked: &PlannedRow,
        windows: &BTreeMap<u32, ActiveWindow>,
    ) -> Result<()> {
        self.push_range(picked, picked.nth..picked.nth.saturating_add(1), windows)
    }

    /// Adds one of the rows that a stored row gives, with a location of its own even if the
    /// previous row came from the same stored row.
    pub(super) fn push_alone(
        &mut self,
        picked: &PlannedRow,
        windows: &BTreeMap<u32, ActiveWindow>,
    ) -> Result<()> {
        self.last = None;
        self.push(picked, windows)
    }

    /// Adds a range of the rows that a stored row gives.
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

    /// Adds rows of a window, each of which gives one row.
    pub(super) fn push_run(
        &mut self,
        rows: &[StoredRow],
        window: u32,
        windows: &BTreeMap<u32, ActiveWindow>,
    ) -> Result<()> {
        let key = self.key_of(window, windows)?;
        let places = (self.position..).zip(rows).map(|(at, row)| row.at(at, key));
        self.places.extend(places);
        self.position += rows.len() as u64;
        self.rows += rows.len();
        Ok(())
    }

    /// Returns the hash key of the pass that a window belongs to, and adds the window to those that
    /// the request reads.
    fn key_of(&mut self, window: u32, windows: &BTreeMap<u32, ActiveWindow>) -> Result<u64> {
        if let Some((last, key)) = self.window
            && last == window
        {
            return Ok(key);
        }
        let Some(entered) = windows.get(&window) else {
            return Err(internal_datafusion_err!("a row has no window"));
        };
        self.windows
            .entry(window)
            .or_insert_with(|| Arc::clone(&entered.window));
        self.window = Some((window, entered.key));
        Ok(entered.key)
    }

    /// Returns the row locations added so far.
    pub(super) fn places(&self) -> &[RowLocation] {
        &self.places
    }

    /// Returns the request, and empties the builder.
    pub(super) fn take(&mut self) -> SegmentRequest {
        self.rows = 0;
        (self.last, self.window) = (None, None);
        SegmentRequest {
            windows: std::mem::take(&mut self.windows).into_values().collect(),
            places: std::mem::take(&mut self.places),
            wanted: self.wanted.as_mut().map(std::mem::take),
            by_child: self.by_child,
            planned: None,
        }
    }

    /// Returns the request with the batches that it completes, and empties the builder; `None` if
    /// there is neither a row nor a batch.
    pub(super) fn cut(
        &mut self,
        epoch: u64,
        batches: Vec<PlannedBatch>,
    ) -> Option<WorkItem<SegmentRequest>> {
        if self.is_empty() && batches.is_empty() {
            return None;
        }
        // A replayed row may be gone, so the number of replayed rows is not checked.
        let planned = (!self.by_child).then_some(self.rows);
        let work = SegmentRequest {
            planned,
            ..self.take()
        };
        let delivery = Delivery::Planned(batches);
        Some(WorkItem::Rows {
            epoch,
            work,
            delivery,
        })
    }
}
