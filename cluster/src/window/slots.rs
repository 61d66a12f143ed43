//! Places of the results that the consumer waits for, in stream order.

use std::collections::{BTreeMap, VecDeque};

use super::budget::ResultBytes;
use super::message::LeaseId;
use super::segment::PieceId;
use crate::error::ClusterError;

/// Results of one segment.
#[derive(Debug)]
enum SlotContent<R> {
    /// The segment is part of a lease. `None` if the host is splitting or settling it.
    Open(Option<LeaseId>),
    Ready(R),
    /// The segment was split: the pieces without a result, and the results, by their first rows.
    Divided {
        missing: BTreeMap<u64, Option<LeaseId>>,
        ready: BTreeMap<u64, R>,
    },
    /// No result comes. The run ends when the segment is the next to deliver.
    Broken(ClusterError),
    Delivered,
}

#[derive(Debug)]
struct DeliverySlot<R> {
    content: SlotContent<R>,
    bytes: ResultBytes,
}

/// The next segment to deliver.
#[derive(Debug)]
pub(super) enum NextDelivery<R> {
    Results { sequence: u64, results: Vec<R> },
    Broken(ClusterError),
}

/// Results of the segments that are in leases or not consumed, in stream order.
#[derive(Debug)]
pub(super) struct DeliverySlots<R> {
    slots: VecDeque<DeliverySlot<R>>,
    /// Number of the first segment that is not consumed.
    first: u64,
    /// Number of the first segment that is not delivered.
    next: u64,
}

impl<R> DeliverySlots<R> {
    pub(super) fn new() -> Self {
        Self {
            slots: VecDeque::new(),
            first: 0,
            next: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Number of segments that are consumed.
    pub(super) fn consumed(&self) -> u64 {
        self.first
    }

    /// Number of segments that are delivered.
    pub(super) fn delivered(&self) -> u64 {
        self.next
    }

    /// Adds the next segment.
    pub(super) fn push(&mut self) {
        self.slots.push_back(DeliverySlot {
            content: SlotContent::Open(None),
            bytes: ResultBytes::default(),
        });
    }

    fn slot(&mut self, sequence: u64) -> Option<&mut DeliverySlot<R>> {
        let index = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(index)
    }

    /// Notes the lease that computes a piece; `None` if no lease does at the moment.
    pub(super) fn set_lease(&mut self, piece: PieceId, lease: Option<LeaseId>) {
        let Some(slot) = self.slot(piece.sequence) else {
            return;
        };
        match &mut slot.content {
            SlotContent::Open(holder) => *holder = lease,
            SlotContent::Divided { missing, .. } => {
                if let Some(holder) = missing.get_mut(&piece.row) {
                    *holder = lease;
                }
            }
            _ => {}
        }
    }

    /// Replaces a piece by smaller ones that start at the rows `rows`.
    pub(super) fn divide(&mut self, piece: PieceId, rows: impl Iterator<Item = u64>) {
        let Some(slot) = self.slot(piece.sequence) else {
            return;
        };
        if let SlotContent::Open(_) = slot.content {
            slot.content = SlotContent::Divided {
                missing: BTreeMap::from([(piece.row, None)]),
                ready: BTreeMap::new(),
            };
        }
        if let SlotContent::Divided { missing, .. } = &mut slot.content {
            missing.remove(&piece.row);
            missing.extend(rows.map(|row| (row, None)));
        }
    }

    /// Stores the result of a piece. Returns `false` if nothing waits for it.
    pub(super) fn complete(&mut self, piece: PieceId, result: R, bytes: ResultBytes) -> bool {
        let Some(slot) = self.slot(piece.sequence) else {
            return false;
        };
        match &mut slot.content {
            SlotContent::Open(_) => slot.content = SlotContent::Ready(result),
            SlotContent::Divided { missing, ready } => {
                if missing.remove(&piece.row).is_none() {
                    return false;
                }
                ready.insert(piece.row, result);
            }
            _ => return false,
        }
        slot.bytes.add(bytes);
        true
    }

    /// Notes that a piece has no result. Returns the bytes of the segment's other pieces.
    pub(super) fn break_piece(&mut self, piece: PieceId, error: ClusterError) -> ResultBytes {
        match self.slot(piece.sequence) {
            Some(slot) if !matches!(slot.content, SlotContent::Broken(_)) => {
                slot.content = SlotContent::Broken(error);
                std::mem::take(&mut slot.bytes)
            }
            _ => ResultBytes::default(),
        }
    }

    /// Returns the lease that computes the next segment to deliver, or its first missing piece.
    pub(super) fn head_lease(&self) -> Option<LeaseId> {
        let index = usize::try_from(self.next - self.first).ok()?;
        match &self.slots.get(index)?.content {
            SlotContent::Open(lease) => *lease,
            SlotContent::Divided { missing, .. } => {
                missing.first_key_value().and_then(|(_, lease)| *lease)
            }
            _ => None,
        }
    }

    /// Takes the results of the next segment, if they are complete.
    pub(super) fn deliver(&mut self) -> Option<NextDelivery<R>> {
        let sequence = self.next;
        let slot = self.slot(sequence)?;
        match &slot.content {
            SlotContent::Broken(error) => return Some(NextDelivery::Broken(error.clone())),
            SlotContent::Ready(_) => {}
            SlotContent::Divided { missing, .. } if missing.is_empty() => {}
            _ => return None,
        }
        let content = std::mem::replace(&mut slot.content, SlotContent::Delivered);
        let results = match content {
            SlotContent::Ready(result) => vec![result],
            SlotContent::Divided { ready, .. } => ready.into_values().collect(),
            _ => Vec::new(),
        };
        self.next += 1;
        Some(NextDelivery::Results { sequence, results })
    }

    /// Removes the first segment, if it was delivered. Returns the bytes that this frees.
    pub(super) fn consume(&mut self) -> Option<ResultBytes> {
        if self.first == self.next {
            return None;
        }
        let slot = self.slots.pop_front()?;
        self.first += 1;
        Some(slot.bytes)
    }

    /// Removes all segments.
    pub(super) fn clear(&mut self) {
        self.slots = VecDeque::new();
    }

    /// Removes the segments from `end` on that are not delivered. Returns the bytes that this
    /// frees.
    pub(super) fn truncate(&mut self, end: u64) -> ResultBytes {
        let kept = usize::try_from(end.max(self.next) - self.first).unwrap_or(usize::MAX);
        let mut freed = ResultBytes::default();
        while self.slots.len() > kept {
            if let Some(slot) = self.slots.pop_back() {
                freed.add(slot.bytes);
            }
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(sequence: u64, row: u64) -> PieceId {
        PieceId { sequence, row }
    }

    fn slots(count: u64) -> DeliverySlots<u64> {
        let mut slots = DeliverySlots::new();
        for sequence in 0..count {
            slots.push();
            slots.set_lease(piece(sequence, 0), Some(LeaseId(sequence)));
        }
        slots
    }

    fn delivered(slots: &mut DeliverySlots<u64>) -> Vec<Vec<u64>> {
        let mut found = Vec::new();
        while let Some(NextDelivery::Results { results, .. }) = slots.deliver() {
            found.push(results);
        }
        found
    }

    #[test]
    fn results_are_delivered_in_stream_order() {
        let mut slots = slots(3);
        let bytes = ResultBytes::new(1, 0);
        assert!(slots.complete(piece(1, 0), 11, bytes));
        assert!(delivered(&mut slots).is_empty());
        assert!(slots.complete(piece(0, 0), 10, bytes));
        assert_eq!(delivered(&mut slots), [[10], [11]]);
        assert_eq!(slots.head_lease(), Some(LeaseId(2)));
    }

    #[test]
    fn a_second_result_is_a_duplicate() {
        let mut slots = slots(1);
        let bytes = ResultBytes::new(1, 0);
        assert!(slots.complete(piece(0, 0), 10, bytes));
        assert!(!slots.complete(piece(0, 0), 12, bytes));
        assert_eq!(delivered(&mut slots), [[10]]);
        assert!(!slots.complete(piece(0, 0), 13, bytes));
        assert!(slots.consume().is_some());
        assert!(!slots.complete(piece(0, 0), 14, bytes));
        assert!(slots.consume().is_none());
    }

    #[test]
    fn pieces_are_delivered_together_in_the_order_of_their_rows() {
        let mut slots = slots(1);
        let bytes = ResultBytes::new(1, 0);
        slots.divide(piece(0, 0), [0, 4].into_iter());
        slots.divide(piece(0, 4), [4, 5].into_iter());
        for (row, result) in [(5, 52), (0, 50)] {
            assert!(slots.complete(piece(0, row), result, bytes));
        }
        assert!(delivered(&mut slots).is_empty());
        assert!(slots.complete(piece(0, 4), 51, bytes));
        assert_eq!(delivered(&mut slots), [[50, 51, 52]]);
    }

    #[test]
    fn a_broken_segment_is_reported_behind_the_segments_before_it() {
        let mut slots = slots(2);
        let error = ClusterError::Refused {
            cause: String::new(),
        };
        slots.break_piece(piece(1, 0), error);
        assert!(slots.deliver().is_none());
        slots.complete(piece(0, 0), 10, ResultBytes::new(1, 0));
        assert_eq!(delivered(&mut slots), [[10]]);
        assert!(matches!(slots.deliver(), Some(NextDelivery::Broken(_))));
    }

    #[test]
    fn truncating_keeps_delivered_segments() {
        let mut slots = slots(3);
        for sequence in [0, 2] {
            slots.complete(piece(sequence, 0), 1, ResultBytes::new(1000, 0));
        }
        assert_eq!(delivered(&mut slots).len(), 1);
        assert!(slots.truncate(0).held >= 1000);
        assert_eq!(slots.slots.len(), 1);
    }
}
