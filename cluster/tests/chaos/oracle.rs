//! The rules that a window must keep, computed apart from it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forebay_cluster::error::ClusterError;
use forebay_cluster::window::{
    AttemptId, ByteSize, LeaseId, LeaseSegment, LeaseWindow, PieceId, WindowSettings,
};

use crate::scenario::{MachineSpec, RowRange, Scenario, SimResult};

/// Bytes that the window counts for each segment besides its result.
const OVERHEAD: u64 = 256;

#[derive(Debug)]
struct ActiveAttempt {
    lease: LeaseId,
    segments: Vec<LeaseSegment<RowRange>>,
}

impl ActiveAttempt {
    fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

#[derive(Debug)]
pub(crate) struct Oracle<'a> {
    scenario: &'a Scenario,
    settings: &'a WindowSettings,
    active: BTreeMap<AttemptId, ActiveAttempt>,
    reserved: BTreeMap<PieceId, u64>,
    /// Bytes of results, and their excess, by segment and row.
    held: BTreeMap<PieceId, (u64, u64)>,
    broken: BTreeSet<u64>,
    convicted: Vec<RowRange>,
    /// Number of convicted pieces without poison.
    pub(crate) unlucky: u64,
    /// Segments that were in leases.
    leased: u64,
    alone: u64,
    pub(crate) delivered: u64,
    pub(crate) unconsumed: VecDeque<u64>,
    pub(crate) consumed: u64,
    /// First segment that the consumer does not need.
    pub(crate) end: u64,
}

impl<'a> Oracle<'a> {
    pub(crate) fn new(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            settings: &scenario.settings,
            active: BTreeMap::new(),
            reserved: BTreeMap::new(),
            held: BTreeMap::new(),
            broken: BTreeSet::new(),
            convicted: Vec::new(),
            unlucky: 0,
            leased: 0,
            alone: 0,
            delivered: 0,
            unconsumed: VecDeque::new(),
            consumed: 0,
            end: scenario.segments.len() as u64,
        }
    }

    pub(crate) fn submitted(
        &mut self,
        attempt: AttemptId,
        lease: LeaseId,
        segments: &[LeaseSegment<RowRange>],
    ) {
        let first = segments.first().expect("a lease of segments").id.sequence;
        let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        if segments.len() > 1 {
            assert!(bytes <= self.settings.headroom(), "a lease is too large");
        }
        for pair in segments.windows(2) {
            let is_next = pair[1].id.sequence == pair[0].id.sequence + 1;
            assert!(is_next, "segments of a lease are not consecutive");
        }
        if first == self.leased {
            assert!(first > 0 || segments.len() == 1, "the first lease is large");
            self.leased += segments.len() as u64;
            if first == self.consumed {
                self.alone = bytes;
            }
        }
        for segment in segments {
            self.reserved.insert(segment.id, segment.bytes);
        }
        let segments = segments.to_vec();
        let previous = self
            .active
            .insert(attempt, ActiveAttempt { lease, segments });
        assert!(previous.is_none(), "{attempt:?} was submitted twice");
    }

    /// Notes that the window hears of the end of an attempt.
    pub(crate) fn ended(&mut self, attempt: AttemptId, results: Option<&[SimResult]>) {
        let Some(active) = self.active.remove(&attempt) else {
            return;
        };
        for (segment, result) in active.segments.iter().zip(results.unwrap_or_default()) {
            self.hold(segment.id, result.bytes());
        }
    }

    pub(crate) fn hold(&mut self, piece: PieceId, bytes: u64) {
        if piece.sequence < self.end && !self.broken.contains(&piece.sequence) {
            let bytes = bytes + OVERHEAD;
            let excess = bytes.saturating_sub(self.reserved[&piece]);
            self.held.insert(piece, (bytes, excess));
        }
    }

    /// Notes that a segment has no result.
    pub(crate) fn broke(&mut self, sequence: u64) {
        self.broken.insert(sequence);
        self.held.retain(|piece, _| piece.sequence != sequence);
    }

    pub(crate) fn cancelled(&mut self, attempt: AttemptId) {
        let active = self.active.remove(&attempt);
        assert!(
            active.is_some(),
            "{attempt:?} was cancelled but does not run"
        );
    }

    pub(crate) fn check_delivery(&mut self, sequence: u64, results: &[SimResult]) {
        assert_eq!(sequence, self.delivered, "out of order");
        assert!(
            sequence < self.end,
            "the consumer does not need segment {sequence}"
        );
        let segment = &self.scenario.segments[sequence as usize];
        let mut row = 0;
        for result in results {
            let range = result.range;
            assert_eq!((range.sequence, range.from), (sequence, row), "wrong rows");
            row += range.rows;
            let is_convicted = self.convicted.contains(&range);
            assert!(
                is_convicted || !self.has_poison(range),
                "poison has a result"
            );
            assert_eq!(result.is_failure, is_convicted, "wrong failure");
        }
        assert_eq!(row, segment.info.rows, "rows are missing or repeated");
        self.delivered += 1;
        self.unconsumed.push_back(sequence);
    }

    /// Checks that a piece is to blame: its rows are poison, or so many machines died under it that
    /// nobody can tell.
    pub(crate) fn convict(&mut self, range: RowRange, deaths: usize) {
        let is_poison = self.has_poison(range);
        assert!(
            is_poison || deaths >= 6,
            "{range:?} is innocent: {deaths} deaths"
        );
        self.unlucky += u64::from(!is_poison);
        self.convicted.push(range);
    }

    fn has_poison(&self, range: RowRange) -> bool {
        let first = (range.sequence, range.from);
        let last = (range.sequence, range.from + range.rows);
        self.scenario.poison.range(first..last).next().is_some()
    }

    pub(crate) fn consume(&mut self) {
        let sequence = self.unconsumed.pop_front().expect("a delivered segment");
        self.consumed += 1;
        self.held.retain(|piece, _| piece.sequence > sequence);
        self.reserved = self.reserved.split_off(&PieceId { sequence, row: 0 });
    }

    pub(crate) fn skip_from(&mut self, end: u64) {
        self.end = self.end.min(end.max(self.delivered));
        self.held.split_off(&PieceId {
            sequence: self.end,
            row: 0,
        });
    }

    /// Checks the bound of the bytes and the number of attempts.
    pub(crate) fn check(&self, window: &LeaseWindow<RowRange, SimResult>) {
        let mut leases: BTreeMap<LeaseId, Vec<&ActiveAttempt>> = BTreeMap::new();
        for attempt in self.active.values() {
            leases.entry(attempt.lease).or_default().push(attempt);
        }
        let mut second = 0;
        for attempts in leases.values().filter(|attempts| attempts.len() > 1) {
            assert_eq!(attempts.len(), 2, "a lease runs more than twice");
            assert_eq!(second, 0, "two leases run twice");
            let sequences = attempts[0]
                .segments
                .iter()
                .map(|segment| segment.id.sequence);
            assert!(
                sequences.clone().any(|sequence| sequence == self.delivered),
                "not the head"
            );
            second = attempts[0].bytes();
        }
        let reserved: u64 = self.active.values().map(ActiveAttempt::bytes).sum();
        let held: u64 = self.held.values().map(|(bytes, _)| bytes).sum();
        let excess: u64 = self.held.values().map(|(_, excess)| excess).sum();
        let bound = self.settings.limit().max(self.alone) + second + excess;
        let (used, status) = (reserved + held, window.status());
        assert!(used <= bound, "{used} bytes are over the bound of {bound}");
        // A segment that no worker can compute frees its other pieces unseen.
        let is_unfit = |machine: &MachineSpec| machine.unfit_from.is_some();
        let is_unknown = self.scenario.machines.iter().any(is_unfit);
        assert!(
            used <= status.used_bytes || is_unknown,
            "{used} bytes are not all counted: {status:?}"
        );
        assert!(
            status.used_bytes <= status.bound_bytes,
            "over the bound: {status:?}"
        );
        assert_eq!(status.attempts, self.active.len());
    }

    pub(crate) fn check_ended(&self) {
        assert!(
            self.active.is_empty(),
            "attempts run at the end: {:?}",
            self.active
        );
    }

    /// Checks that the scenario entitles the run to end with `error`.
    pub(crate) fn check_error(&self, error: &ClusterError) {
        match error {
            ClusterError::Refused { .. } => {
                assert!(self.scenario.faults.refuses_at.is_some(), "{error}");
            }
            ClusterError::Poison { .. } => {
                let is_head = |range: &RowRange| range.sequence == self.delivered;
                assert!(self.convicted.iter().any(is_head), "{error}");
                assert!(!self.scenario.is_poison_data, "{error}");
            }
            ClusterError::Unfit { sequence, reasons } => {
                assert_eq!(*sequence, self.delivered, "{error}");
                let machines = &self.scenario.machines;
                for (worker, _) in reasons {
                    let index = worker.0[1..]
                        .split('.')
                        .next()
                        .and_then(|text| text.parse().ok());
                    let index: usize = index.expect("a machine's number");
                    assert!(machines[index].unfit_from.is_some(), "{error}");
                }
                let are_all_unfit = machines.iter().all(|machine| machine.unfit_from.is_some());
                assert!(reasons.len() == 3 || are_all_unfit, "{error}");
            }
            _ => panic!("no scenario entitles the run to this error: {error}"),
        }
    }

    /// Checks that a run without error delivered what the consumer needs.
    pub(crate) fn check_finished(&self) {
        assert_eq!(
            (self.delivered, self.consumed),
            (self.end, self.end),
            "incomplete"
        );
    }
}
