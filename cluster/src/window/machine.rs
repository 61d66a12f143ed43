//! The state machine of a window: receives events, and asks for actions.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use super::budget::ByteAccount;
use super::lease::OpenLease;
use super::message::{AttemptId, LeaseId, WindowAction, WindowEvent};
use super::mortality::Mortality;
use super::outage::Outage;
use super::pace::Pace;
use super::queue::SegmentQueue;
use super::segment::{ByteSize, PieceId};
use super::settings::WindowSettings;
use super::slots::{DeliverySlots, NextDelivery};
use super::status::{WindowCounts, WindowStatus};
use super::workers::WorkerRecords;
use crate::error::ClusterError;

/// The client's window of leases, as [the module](super) describes it. `N` names segments, and
/// `R` is the result of one.
#[derive(Debug)]
pub struct LeaseWindow<N, R> {
    pub(super) settings: WindowSettings,
    pub(super) now: Duration,
    pub(super) queue: SegmentQueue<N>,
    pub(super) slots: DeliverySlots<R>,
    pub(super) account: ByteAccount,
    pub(super) leases: HashMap<LeaseId, OpenLease<N>>,
    /// Number of leases that are no suspects.
    pub(super) trusted: usize,
    /// Leases of running attempts.
    pub(super) attempts: HashMap<AttemptId, LeaseId>,
    /// Leases to submit as soon as the scheduler is available.
    pub(super) ready: BTreeSet<(PieceId, LeaseId)>,
    /// Leases to submit one at a time: suspects, and others that lost workers.
    pub(super) serial: BTreeSet<(PieceId, LeaseId)>,
    /// Leases from `serial` with running attempts.
    pub(super) running_serial: BTreeSet<LeaseId>,
    /// Leases for which a worker was unfit.
    pub(super) restricted: BTreeSet<LeaseId>,
    /// Leases that wait for a time.
    pub(super) timers: BTreeSet<(Duration, LeaseId)>,
    /// Leases of one segment that the host splits.
    pub(super) splitting: BTreeMap<PieceId, OpenLease<N>>,
    /// Leases of one piece for which the host finds a result.
    pub(super) settling: BTreeMap<PieceId, OpenLease<N>>,
    pub(super) outage: Outage,
    pub(super) workers: WorkerRecords,
    pub(super) pace: Pace,
    pub(super) mortality: Mortality,
    pub(super) counts: WindowCounts,
    pub(super) next_id: u64,
    /// First segment that the consumer does not need.
    pub(super) end: u64,
    /// True while the host looks for segments.
    is_asking: bool,
    /// True if the host waits for segments itself.
    is_delayed: bool,
    /// Time at which the lease at the head is late.
    pub(super) late_at: Option<Duration>,
    wake_at: Option<Duration>,
    actions: VecDeque<WindowAction<N, R>>,
    has_ended: bool,
}

impl<N: Clone, R: ByteSize> LeaseWindow<N, R> {
    /// Makes an empty window, which asks for its first segment.
    pub fn new(settings: WindowSettings) -> Self {
        let mut window = Self {
            account: ByteAccount::new(&settings),
            settings,
            now: Duration::ZERO,
            queue: SegmentQueue::new(),
            slots: DeliverySlots::new(),
            leases: HashMap::new(),
            trusted: 0,
            attempts: HashMap::new(),
            ready: BTreeSet::new(),
            serial: BTreeSet::new(),
            running_serial: BTreeSet::new(),
            restricted: BTreeSet::new(),
            timers: BTreeSet::new(),
            splitting: BTreeMap::new(),
            settling: BTreeMap::new(),
            outage: Outage::default(),
            workers: WorkerRecords::default(),
            pace: Pace::default(),
            mortality: Mortality::default(),
            counts: WindowCounts::default(),
            next_id: 0,
            end: u64::MAX,
            is_asking: false,
            is_delayed: false,
            late_at: None,
            wake_at: None,
            actions: VecDeque::new(),
            has_ended: false,
        };
        window.proceed();
        window
    }

    /// Receives an event at the time `now`, which is counted from the start of the run.
    pub fn handle(&mut self, now: Duration, event: WindowEvent<N, R>) {
        if self.has_ended {
            return;
        }
        self.now = self.now.max(now);
        match event {
            WindowEvent::SegmentsAdded(segments) => {
                self.is_asking = false;
                self.is_delayed = false;
                self.queue.add(segments);
            }
            WindowEvent::SegmentsDelayed => self.is_delayed = true,
            WindowEvent::EndOfStream => self.queue.complete(),
            WindowEvent::AttemptDone {
                attempt,
                worker,
                results,
                took,
            } => self.attempt_done(attempt, worker, results, took),
            WindowEvent::AttemptFailed { attempt, error } => self.attempt_failed(attempt, error),
            WindowEvent::Consumed => {
                if let Some(freed) = self.slots.consume() {
                    self.account.free(freed);
                }
            }
            WindowEvent::WorkersChanged(workers) => {
                self.workers.replace(workers);
                self.review_restricted();
            }
            WindowEvent::Tick => self.wake_at = None,
            WindowEvent::SkipFrom(end) => self.skip_from(end),
            WindowEvent::SegmentSplit { piece, pieces } => self.segment_split(piece, pieces),
            WindowEvent::PoisonSettled { piece, result } => self.poison_settled(piece, result),
            WindowEvent::Stop => self.stop(),
        }
        self.proceed();
    }

    /// Returns the next action that the window asks for.
    pub fn next_action(&mut self) -> Option<WindowAction<N, R>> {
        self.actions.pop_front()
    }

    /// Returns the status of the window.
    pub fn status(&self) -> WindowStatus {
        WindowStatus {
            leases: self.leases.len() + self.splitting.len() + self.settling.len(),
            attempts: self.attempts.len(),
            delivered: self.slots.delivered(),
            consumed: self.slots.consumed(),
            used_bytes: self.account.used(),
            bound_bytes: self.account.bound(),
            counts: self.counts,
            set_aside: self.workers.aside(),
        }
    }

    pub(super) fn ask(&mut self, action: WindowAction<N, R>) {
        self.actions.push_back(action);
    }

    /// Does everything that the last event makes possible.
    fn proceed(&mut self) {
        self.run_timers();
        self.deliver();
        if self.has_ended {
            return;
        }
        self.submit_waiting();
        self.submit_new();
        self.hedge();
        self.ask_for_segments();
        if self.slots.is_empty() && self.queue.is_exhausted() {
            self.stop();
            self.ask(WindowAction::Finish);
        } else {
            self.ask_for_time();
        }
    }

    fn deliver(&mut self) {
        while let Some(delivery) = self.slots.deliver() {
            match delivery {
                NextDelivery::Results { sequence, results } => {
                    self.ask(WindowAction::Deliver { sequence, results });
                }
                NextDelivery::Broken(error) => return self.fail(error),
            }
        }
    }

    /// Submits leases of new segments, as far as workers and memory allow.
    fn submit_new(&mut self) {
        while self.outage.until(self.now).is_none() && !self.has_suspects() {
            self.queue.extend(&self.pace, &self.settings);
            let usable = self.workers.usable().max(1);
            let is_urgent = self.is_delayed && self.trusted < usable;
            let Some(bytes) = self.queue.ready_bytes(is_urgent) else {
                return;
            };
            let is_alone = self.slots.is_empty();
            let slots = usable.saturating_mul(self.settings.leases_per_worker.max(1));
            if !is_alone && (self.trusted >= slots || !self.account.has_room(bytes)) {
                return;
            }
            let cut = self.queue.take(&self.settings);
            self.account.reserve(bytes, is_alone);
            cut.segments.iter().for_each(|_| self.slots.push());
            let lease = OpenLease::new(cut, &self.settings);
            let id = self.add_lease(lease);
            self.submit(id);
        }
    }

    fn ask_for_segments(&mut self) {
        if self.is_asking {
            return;
        }
        if let Some(demand) = self.queue.demand(&self.settings) {
            self.is_asking = true;
            self.ask(WindowAction::WantSegments {
                segments: demand.segments,
                bytes: demand.bytes,
                work: demand.work,
            });
        }
    }

    fn ask_for_time(&mut self) {
        let has_waiting = !self.ready.is_empty() || !self.serial.is_empty();
        let has_work = has_waiting || self.queue.has_segments();
        let outage = self.outage.until(self.now).filter(|_| has_work);
        let timer = self.timers.first().map(|(time, _)| *time);
        let times = [outage, timer, self.late_at];
        let Some(next) = times.into_iter().flatten().min() else {
            return;
        };
        if self.wake_at != Some(next) {
            self.wake_at = Some(next);
            self.ask(WindowAction::WakeAt(next));
        }
    }

    fn skip_from(&mut self, end: u64) {
        let end = end.max(self.slots.delivered());
        self.end = self.end.min(end);
        self.queue.skip_from(self.end);
        let freed = self.slots.truncate(self.end);
        self.account.free(freed);
        let dropped = self
            .leases
            .iter()
            .filter(|(_, lease)| lease.place().sequence >= end);
        let mut dropped: Vec<LeaseId> = dropped.map(|(id, _)| *id).collect();
        dropped.sort_unstable();
        for id in dropped {
            if let Some(lease) = self.remove_lease(id) {
                self.account.release(lease.bytes);
            }
        }
        self.drop_held_from(end);
    }

    /// Cancels everything. The window does not react to events any more.
    fn stop(&mut self) {
        let mut running: Vec<AttemptId> = self.attempts.drain().map(|(id, _)| id).collect();
        running.sort_unstable();
        for attempt in running {
            self.ask(WindowAction::Cancel { attempt });
        }
        self.leases.clear();
        self.splitting.clear();
        self.settling.clear();
        self.slots.clear();
        self.queue = SegmentQueue::new();
        self.account = ByteAccount::new(&self.settings);
        self.has_ended = true;
    }

    /// Ends the run with an error.
    pub(super) fn fail(&mut self, error: ClusterError) {
        self.stop();
        self.ask(WindowAction::Fail(error));
    }
}
