//! Segments that belong to no lease yet, and the cut of the next lease.

use std::collections::VecDeque;
use std::time::Duration;

use super::budget::SEGMENT_OVERHEAD;
use super::pace::Pace;
use super::segment::{LeaseSegment, PieceId, SegmentInfo};
use super::settings::WindowSettings;
use crate::engine::LeaseStaging;

/// Factor by which leases grow until they are full. The first ones are small, so that the first batch is there early;
/// small leases of several clients put more of their windows on more than one worker.
const GROWTH: f64 = 4.0;

/// A lease that becomes larger until it is submitted.
#[derive(Debug, Clone)]
pub(super) struct LeaseCut<N> {
    pub(super) segments: Vec<LeaseSegment<N>>,
    pub(super) affinity: u64,
    /// Time that staging the data of all segments takes.
    staging: Duration,
    /// Time that staging all data of the affinity key takes.
    staging_of_key: Duration,
    /// Key of the data of the last segment.
    staged: Option<u64>,
    /// Bytes to reserve.
    pub(super) bytes: u64,
    /// Expected computing time.
    work: Duration,
    pub(super) estimated_bytes: u64,
    pub(super) estimated_work: Duration,
    /// True if no further segment belongs to the lease.
    is_closed: bool,
}

impl<N> LeaseCut<N> {
    fn new() -> Self {
        Self {
            segments: Vec::new(),
            affinity: 0,
            staging: Duration::ZERO,
            staging_of_key: Duration::ZERO,
            staged: None,
            bytes: 0,
            work: Duration::ZERO,
            estimated_bytes: 0,
            estimated_work: Duration::ZERO,
            is_closed: false,
        }
    }

    /// Returns the data that a worker stages for the lease.
    pub(super) fn staging(&self) -> LeaseStaging {
        LeaseStaging {
            time: self.staging,
            is_most: self.staging.saturating_mul(2) >= self.staging_of_key,
        }
    }

    /// Returns the size of the lease in relation to a full one.
    pub(super) fn weight(&self, settings: &WindowSettings) -> f64 {
        let bytes = self.bytes as f64 / settings.lease_goal() as f64;
        let work = self.work.as_secs_f64() / settings.min_lease_work.as_secs_f64().max(1e-9);
        let segments = self.segments.len() as f64 / settings.max_lease_segments.max(1) as f64;
        bytes.max(work).max(segments)
    }
}

/// Number and estimated size of the segments that the next lease lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentDemand {
    pub(super) segments: usize,
    pub(super) bytes: u64,
    pub(super) work: Duration,
}

/// Segments that belong to no submitted lease, in stream order.
#[derive(Debug)]
pub(super) struct SegmentQueue<N> {
    pending: VecDeque<SegmentInfo<N>>,
    /// Number of the first pending segment.
    next: u64,
    cut: LeaseCut<N>,
    /// Weight at which the next lease is large enough. Grows to 1 while the run is young.
    goal: f64,
    /// First number that the consumer does not need.
    end: u64,
    is_complete: bool,
}

impl<N> SegmentQueue<N> {
    pub(super) fn new() -> Self {
        Self {
            pending: VecDeque::new(),
            next: 0,
            cut: LeaseCut::new(),
            goal: 0.0,
            end: u64::MAX,
            is_complete: false,
        }
    }

    pub(super) fn add(&mut self, segments: Vec<SegmentInfo<N>>) {
        let known = self.next + self.pending.len() as u64;
        let room = usize::try_from(self.end.saturating_sub(known)).unwrap_or(usize::MAX);
        self.pending.extend(segments.into_iter().take(room));
        self.is_complete |= known + self.pending.len() as u64 >= self.end;
    }

    /// Notes that no more segments follow.
    pub(super) fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Drops the segments from `end` on.
    pub(super) fn skip_from(&mut self, end: u64) {
        self.end = self.end.min(end);
        let kept = usize::try_from(self.end.saturating_sub(self.next)).unwrap_or(usize::MAX);
        self.pending.truncate(kept);
        let in_cut = self.cut.segments.len();
        self.cut
            .segments
            .retain(|segment| segment.id.sequence < end);
        if self.cut.segments.len() < in_cut {
            self.cut.is_closed = true;
            self.cut.bytes = self.cut.segments.iter().map(|segment| segment.bytes).sum();
            self.next = self.end;
        }
        let known = self.next + self.pending.len() as u64;
        self.is_complete |= known >= self.end;
    }

    /// Returns `true` if all segments of the stream are in leases.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_complete && self.pending.is_empty() && self.cut.segments.is_empty()
    }

    /// Returns `true` if segments wait for a lease.
    pub(super) fn has_segments(&self) -> bool {
        !self.pending.is_empty() || !self.cut.segments.is_empty()
    }

    /// Moves pending segments into the next lease, until it is large enough.
    pub(super) fn extend(&mut self, pace: &Pace, settings: &WindowSettings) {
        while !self.cut.is_closed {
            let Some(info) = self.pending.front() else {
                break;
            };
            let reserved = pace.bytes(info.bytes).saturating_add(SEGMENT_OVERHEAD);
            let total = self.cut.bytes.saturating_add(reserved);
            if !self.cut.segments.is_empty() {
                let is_foreign = info.affinity != self.cut.affinity;
                let is_full = total > settings.headroom();
                // A lease that is nearly empty takes segments of the next window too: many small
                // windows would otherwise make many small leases. Windows that take long to stage
                // are left to the worker that stages them for others.
                let is_small = self.cut.weight(settings) < self.goal / 4.0
                    && info.staged.time_of_key < settings.min_lease_work;
                if is_full || is_foreign && !is_small {
                    self.cut.is_closed = true;
                    break;
                }
            }
            let Some(info) = self.pending.pop_front() else {
                break;
            };
            let cut = &mut self.cut;
            if cut.segments.is_empty() {
                cut.affinity = info.affinity;
                cut.staging_of_key = info.staged.time_of_key;
            }
            if cut.staged.replace(info.staged.key) != Some(info.staged.key) {
                cut.staging = cut.staging.saturating_add(info.staged.time);
            }
            cut.bytes = total;
            cut.work += pace.work(info.work);
            cut.estimated_bytes = cut.estimated_bytes.saturating_add(info.bytes);
            cut.estimated_work += info.work;
            cut.segments.push(LeaseSegment {
                id: PieceId {
                    sequence: self.next,
                    row: 0,
                },
                name: info.name,
                bytes: reserved,
                rows: info.rows,
                is_divisible: info.is_divisible,
            });
            self.next += 1;
            cut.is_closed = cut.weight(settings) >= self.goal;
        }
    }

    /// Returns the bytes of the next lease, or `None` if there is none. A lease that may still
    /// become larger counts if `is_urgent` or if no more segments follow.
    pub(super) fn ready_bytes(&self, is_urgent: bool) -> Option<u64> {
        let is_ready = self.cut.is_closed || is_urgent || self.is_complete;
        (is_ready && !self.cut.segments.is_empty()).then_some(self.cut.bytes)
    }

    /// Takes the next lease. The one after it may be [`GROWTH`] times as large.
    pub(super) fn take(&mut self, settings: &WindowSettings) -> LeaseCut<N> {
        let cut = std::mem::replace(&mut self.cut, LeaseCut::new());
        let larger = GROWTH * cut.weight(settings);
        self.goal = self.goal.max(larger.min(1.0));
        cut
    }

    /// Returns what the next lease lacks, or `None` if it lacks nothing.
    pub(super) fn demand(&self, settings: &WindowSettings) -> Option<SegmentDemand> {
        if self.cut.is_closed || self.is_complete || !self.pending.is_empty() {
            return None;
        }
        let lacking = |full: f64, present: f64| (full * self.goal - present).max(0.0);
        let segments = lacking(
            settings.max_lease_segments as f64,
            self.cut.segments.len() as f64,
        );
        let bytes = lacking(settings.lease_goal() as f64, self.cut.bytes as f64);
        let work = lacking(
            settings.min_lease_work.as_secs_f64(),
            self.cut.work.as_secs_f64(),
        );
        Some(SegmentDemand {
            segments: (segments.ceil() as usize).max(1),
            bytes: (bytes.ceil() as u64).max(1),
            work: Duration::from_secs_f64(work.max(1e-6)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::segment::StagedData;
    use super::*;

    const MB: u64 = 1 << 20;

    fn info(bytes: u64, work_ms: u64, affinity: u64) -> SegmentInfo<()> {
        SegmentInfo {
            name: (),
            bytes,
            work: Duration::from_millis(work_ms),
            affinity,
            staged: StagedData {
                key: affinity,
                time: Duration::from_millis(7),
                time_of_key: Duration::from_millis(28),
            },
            rows: 1,
            is_divisible: false,
        }
    }

    /// Cuts `segments` into leases, and returns the number of segments of each.
    fn cut(segments: Vec<SegmentInfo<()>>) -> Vec<usize> {
        let (settings, pace) = (WindowSettings::default(), Pace::default());
        let mut queue = SegmentQueue::new();
        queue.add(segments);
        queue.complete();
        let mut sizes = Vec::new();
        loop {
            queue.extend(&pace, &settings);
            if queue.ready_bytes(false).is_none() {
                break;
            }
            sizes.push(queue.take(&settings).segments.len());
        }
        assert!(queue.is_exhausted());
        sizes
    }

    #[test]
    fn data_that_segments_share_is_staged_once() {
        let (settings, pace) = (WindowSettings::default(), Pace::default());
        let mut queue = SegmentQueue::new();
        queue.goal = 1.0;
        queue.add([1, 1, 2, 2, 2].map(|key| info(10, 0, key)).into());
        queue.complete();
        queue.extend(&pace, &settings);
        let cut = queue.take(&settings);
        assert_eq!((cut.segments.len(), cut.affinity), (5, 1));
        let time = Duration::from_millis(14);
        assert_eq!(
            cut.staging(),
            LeaseStaging {
                time,
                is_most: true
            }
        );
    }

    #[test]
    fn the_first_lease_is_one_segment_and_later_leases_grow() {
        let sizes = cut(vec![info(MB, 1, 0); 100]);
        assert_eq!(sizes[..4], [1, 4, 16, 16]);
    }

    #[test]
    fn a_lease_is_full_after_50_ms_of_work() {
        let sizes = cut(vec![info(1000, 10, 0); 100]);
        assert_eq!(sizes[..4], [1, 4, 5, 5]);
    }

    #[test]
    fn cheap_segments_are_bounded_by_their_number() {
        let sizes = cut(vec![info(1, 0, 0); 20_000]);
        assert_eq!(sizes[..4], [1, 4, 16, 64]);
        assert_eq!(sizes.iter().max(), Some(&4096));
    }

    #[test]
    fn a_large_segment_is_a_lease_of_its_own() {
        let mut segments = vec![info(15 * MB, 1, 0); 4];
        segments.push(info(100 * MB, 1, 0));
        assert_eq!(cut(segments), [1, 2, 1, 1]);
    }

    #[test]
    fn a_lease_ends_with_its_window_unless_the_lease_is_small() {
        let mut segments = vec![info(16 * MB, 1, 0)];
        segments.extend(vec![info(MB, 1, 1); 10]);
        segments.extend(vec![info(MB, 1, 2); 2]);
        segments.extend(vec![info(MB, 1, 3); 2]);
        segments.extend(vec![info(MB, 1, 4); 3]);
        assert_eq!(cut(segments), [1, 10, 4, 3]);
    }

    #[test]
    fn windows_that_take_long_to_stage_are_left_to_other_leases() {
        let long = |affinity| SegmentInfo {
            staged: StagedData {
                time_of_key: Duration::from_millis(80),
                ..info(0, 0, affinity).staged
            },
            ..info(MB, 1, affinity)
        };
        let mut segments = vec![long(1); 32];
        segments.extend(vec![long(2); 20]);
        assert_eq!(cut(segments), [1, 4, 16, 11, 16, 4]);
    }

    #[test]
    fn demand_follows_the_size_of_the_next_lease() {
        let settings = WindowSettings::default();
        let mut queue = SegmentQueue::new();
        assert_eq!(
            queue.demand(&settings).map(|demand| demand.segments),
            Some(1)
        );
        queue.add(vec![info(MB, 1, 0)]);
        queue.extend(&Pace::default(), &settings);
        assert_eq!(queue.demand(&settings), None);
        queue.take(&settings);
        let bytes = queue.demand(&settings).map(|demand| demand.bytes);
        assert_eq!(bytes, Some(4 * (MB + SEGMENT_OVERHEAD)));
    }

    #[test]
    fn skipped_segments_leave_the_queue_and_the_next_lease() {
        let settings = WindowSettings::default();
        let mut queue = SegmentQueue::new();
        queue.add(vec![info(MB, 1, 0)]);
        queue.extend(&Pace::default(), &settings);
        queue.take(&settings);
        queue.add(vec![info(MB / 2, 1, 0); 20]);
        queue.extend(&Pace::default(), &settings);
        queue.skip_from(3);
        queue.add(vec![info(MB, 1, 0)]);
        queue.extend(&Pace::default(), &settings);
        assert!(queue.ready_bytes(false).is_some());
        assert_eq!(queue.take(&settings).segments.len(), 2);
        assert!(queue.is_exhausted());
    }
}
