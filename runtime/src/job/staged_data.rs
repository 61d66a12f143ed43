//! The data that a process stages before it computes a segment.

use forebay_udfs::hash::combine;

use super::OpenJob;
use crate::order::{WindowName, WindowSplits};
use crate::segment::{SegmentName, SegmentWindow};

/// Size in bytes of the windows that are best staged by one process: a lease of them is large, and a
/// process has room for several such groups.
const NEIGHBORHOOD_BYTES: u64 = 16 << 20;

/// The data that a process stages before it computes a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StagedSegment {
    /// Hash of the name of the segment's first window.
    pub window: u64,
    /// Hash of a group of consecutive windows to which that window belongs. Runs over the same data
    /// agree on the groups, also if each computes other rows of them.
    pub neighborhood: u64,
    /// Bytes that are read to stage the segment's windows; 0 if rows are read by reference instead.
    pub bytes: u64,
    /// About the bytes of that group.
    pub neighborhood_bytes: u64,
}

impl OpenJob {
    /// Describes the data that is staged for a segment.
    pub fn staged(&self, name: &SegmentName) -> StagedSegment {
        let windows = name
            .windows()
            .filter_map(|window| self.staged_window(window));
        let all = windows.reduce(|first, window| StagedSegment {
            bytes: first.bytes.saturating_add(window.bytes),
            ..first
        });
        all.unwrap_or_default()
    }

    /// Describes a window; `None` if it does not exist.
    fn staged_window(&self, window: SegmentWindow) -> Option<StagedSegment> {
        let (input, epoch, pass, index) = match window {
            SegmentWindow::OfPass {
                input,
                epoch,
                pass,
                index,
            } => (input as usize, epoch, pass, index),
            SegmentWindow::Split { split, .. } => {
                return Some(StagedSegment {
                    window: u64::from(split),
                    neighborhood: u64::from(split),
                    bytes: 0,
                    neighborhood_bytes: 0,
                });
            }
        };
        if input >= self.passes.inputs() {
            return None;
        }
        let data = &self.plan.data;
        let row_bytes = data.is_staged().then(|| data.snapshot.row_bytes());
        let row_bytes = row_bytes.unwrap_or(0);
        let bytes_of = |window: &WindowSplits| window.rows.saturating_mul(row_bytes);
        let pass = (epoch, pass);
        let windows = self.passes.windows(input, pass);
        let bytes = bytes_of(windows.get(index as usize)?);
        // All windows of a pass but the last have about as many rows as the first.
        let each = windows.first().map_or(0, bytes_of);
        let in_group = NEIGHBORHOOD_BYTES.checked_div(each).map_or(1, |n| n.max(1));
        let of_pass = match self.passes.name(input, pass, index) {
            WindowName::Whole { .. } => 0,
            _ => self.passes.key(pass),
        };
        let of_pass = combine(input as u64, of_pass);
        Some(StagedSegment {
            window: combine(of_pass, u64::from(index)),
            neighborhood: combine(of_pass, u64::from(index) / in_group),
            bytes,
            neighborhood_bytes: bytes.max(each.saturating_mul(in_group)),
        })
    }
}
