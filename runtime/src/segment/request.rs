//! Segment requests: the rows that a segment reads and computes.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use datafusion::common::Result;

use super::cached_prefix::{CachedPrefix, Found};
use super::compute::{ReadSegment, ScanRows, Values};
use super::context::SegmentContext;
use super::data::StoredData;
use super::lazy_window::LazyWindow;
use super::staging::stage_splits;
use super::window::stages;
use crate::order::RowLocation;
use crate::record_batch::batch_bytes;

/// A request to read and compute the rows of one segment.
#[derive(Debug)]
pub(crate) struct SegmentRequest {
    /// The windows that contain the rows of `places`; empty if the segment has no rows.
    pub(crate) windows: Vec<Arc<LazyWindow>>,
    /// Locations of the segment's stored rows, sorted by position in the stream.
    pub(crate) places: Vec<RowLocation>,
    /// True if it is known that pruning removed none of the stored rows.
    pub(crate) are_kept: bool,
    /// For each location in `places`, the range of its output rows to keep, counted from 0; `None`
    /// to keep all output rows.
    pub(crate) wanted: Option<Vec<Range<u32>>>,
    /// True if `wanted` counts all children that `unnest` makes of a stored row, including children
    /// that a filter above the `unnest` drops. False if `wanted` counts only the rows that reach
    /// the output.
    pub(crate) by_child: bool,
    /// Number of output rows that were counted for this segment in advance; `None` if rows were not
    /// counted.
    pub(crate) planned: Option<usize>,
}

impl SegmentRequest {
    /// Reads the segment's stored rows.
    pub(crate) async fn read(self, context: &SegmentContext) -> Result<ReadSegment> {
        let SegmentContext { data, reader, .. } = context;
        let mut windows = Vec::with_capacity(self.windows.len());
        for window in &self.windows {
            windows.push(window.get().await?);
        }
        let positions = self.places.iter().map(|place| place.position);
        let wanted = self.wanted.map(|wanted| positions.zip(wanted).collect());
        let mut segment = ReadSegment {
            windows,
            by_scan: Vec::new(),
            are_kept: self.are_kept,
            found: None,
            wanted,
            by_child: self.by_child,
            planned: self.planned,
        };
        if self.places.is_empty() {
            return Ok(segment);
        }
        let mut by_scan: Vec<Vec<RowLocation>> = vec![Vec::new(); data.snapshot.scans.len()];
        match by_scan.as_mut_slice() {
            [only] => *only = self.places,
            many => {
                for place in self.places {
                    many[data.snapshot.scan_of(place.row)].push(place);
                }
            }
        }
        if let Some(cached) = &reader.cached {
            segment.found = Some(find(data, cached, &mut by_scan).await);
        }
        for (scan, places) in by_scan.into_iter().enumerate() {
            let values = match stages(&segment.windows, scan) {
                None if reader.reads[scan].projection.is_empty() => Values::NotRead,
                None => fetch(context, scan, &places).await?,
                // All splits of a window are staged but those whose rows are cached.
                Some(_) if reader.cached_below(scan).is_none() => Values::Staged,
                Some(staged) => {
                    let mut splits: Vec<u32> = places.iter().map(|place| place.row.split).collect();
                    splits.dedup();
                    let is_staged = |&split: &u32| staged.iter().any(|s| s.has(split));
                    if splits.iter().all(is_staged) {
                        Values::Staged
                    } else {
                        // When the window was staged, some splits were left out because all their
                        // rows were cached. Some of these rows were evicted from the cache since,
                        // so the splits are staged now.
                        splits.sort_unstable();
                        splits.dedup();
                        let staged = stage_splits(context, scan, splits).await?;
                        Values::StagedLate(Box::new(staged))
                    }
                }
            };
            segment.by_scan.push(ScanRows { places, values });
        }
        Ok(segment)
    }
}

/// Looks up the rows of the cached prefix in the cache. Rows that are not in the cache stay in
/// `by_scan`, to be computed.
async fn find(data: &StoredData, cached: &CachedPrefix, by_scan: &mut [Vec<RowLocation>]) -> Found {
    let mut wanted = Vec::new();
    for (scan, places) in by_scan.iter_mut().enumerate() {
        if cached.holds(scan) {
            wanted.append(places);
        }
    }
    wanted.sort_unstable_by_key(|place| place.position);
    let found = cached.find(&data.snapshot, wanted).await;
    for place in &found.missing {
        by_scan[data.snapshot.scan_of(place.row)].push(*place);
    }
    found
}

/// Reads the rows at `places` one by one from the source of scan `scan`, which must have direct access.
async fn fetch(context: &SegmentContext, scan: usize, places: &[RowLocation]) -> Result<Values> {
    let SegmentContext { data, reader, .. } = context;
    let address = |place: &RowLocation| data.snapshot.in_source(place.row);
    let rows: Vec<(u32, u64)> = places.iter().map(address).collect();
    let start = Instant::now();
    let projection = &reader.reads[scan].projection;
    let (batch, failed) = data.sources[scan].fetch(&rows, projection).await?;
    reader.note_reading(start.elapsed(), batch_bytes(&batch));
    Ok(Values::Fetched(batch, failed))
}
