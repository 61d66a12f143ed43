//! One run in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use forebay_cluster::error::ClusterError;
use forebay_cluster::window::{LeaseWindow, SegmentPiece, WindowAction, WindowEvent};

use crate::cluster::{ClusterEvent, Effect, SimCluster, SimEvent, Submission};
use crate::oracle::Oracle;
use crate::rng::SplitMix;
use crate::scenario::{ConsumerEnd, RowRange, Scenario, SimResult};

/// Virtual time, besides that of the work, and number of events after which a run counts as stuck.
const MAX_TIME: Duration = Duration::from_secs(4 * 3600);
const MAX_EVENTS: u64 = 300_000;

#[derive(Debug)]
enum SimStep {
    Window(SimEvent),
    Cluster(ClusterEvent),
    Tick,
    Consume,
    Supply,
}

/// A step with its time and number, by which steps are ordered.
#[derive(Debug)]
struct Scheduled {
    key: Reverse<(Duration, u64)>,
    step: SimStep,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SimEnding {
    Finished,
    Stopped,
    Failed(ClusterError),
}

/// The end of a run and numbers of its events.
#[derive(Debug)]
pub(crate) struct SimReport {
    pub(crate) ending: SimEnding,
    pub(crate) time: Duration,
    pub(crate) events: u64,
    pub(crate) settled: u64,
    pub(crate) unlucky: u64,
    /// Machines that died of a single poison row, if nothing else goes wrong.
    pub(crate) poison_deaths: Option<u64>,
    pub(crate) set_aside: usize,
    pub(crate) counts: forebay_cluster::window::WindowCounts,
}

#[derive(Debug)]
pub(crate) struct Simulation<'a> {
    scenario: &'a Scenario,
    window: LeaseWindow<RowRange, SimResult>,
    cluster: SimCluster,
    oracle: Oracle<'a>,
    rng: SplitMix,
    steps: BinaryHeap<Scheduled>,
    number: u64,
    now: Duration,
    wake_at: Option<Duration>,
    demand: Option<(usize, u64)>,
    supplied: usize,
    is_consuming: bool,
    has_reached_end: bool,
    settled: u64,
    ending: Option<SimEnding>,
    is_verbose: bool,
}

impl<'a> Simulation<'a> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64, is_verbose: bool) -> Self {
        let mut rng = SplitMix::new(!seed);
        Self {
            scenario,
            window: LeaseWindow::new(scenario.settings.clone()),
            cluster: SimCluster::new(scenario, &mut rng),
            oracle: Oracle::new(scenario),
            rng,
            steps: BinaryHeap::new(),
            number: 0,
            now: Duration::ZERO,
            wake_at: None,
            demand: None,
            supplied: 0,
            is_consuming: false,
            has_reached_end: false,
            settled: 0,
            ending: None,
            is_verbose,
        }
    }

    /// Runs until the window ends the run. Panics if a rule is broken.
    pub(crate) fn run(mut self) -> SimReport {
        let mut events = 0;
        let max_time = MAX_TIME + self.scenario.slowest() * 4;
        let mut set_aside = 0;
        self.act();
        self.reach_end();
        while self.ending.is_none() {
            let Some(scheduled) = self.steps.pop() else {
                panic!("stuck at {:?}: {:?}", self.now, self.window.status());
            };
            events += 1;
            self.now = scheduled.key.0.0;
            assert!(
                self.now < max_time && events < MAX_EVENTS,
                "endless: {:?}",
                self.window.status()
            );
            self.step(scheduled.step);
            set_aside = set_aside.max(self.window.status().set_aside.len());
        }
        self.oracle.check_ended();
        let ending = self.ending.clone().unwrap_or(SimEnding::Stopped);
        match &ending {
            SimEnding::Finished => self.oracle.check_finished(),
            SimEnding::Failed(error) => self.oracle.check_error(error),
            SimEnding::Stopped => {}
        }
        self.check_silence();
        SimReport {
            ending,
            time: self.now,
            events,
            settled: self.settled,
            unlucky: self.oracle.unlucky,
            poison_deaths: self.scenario.is_quiet().then_some(self.cluster.deaths),
            set_aside,
            counts: self.window.status().counts,
        }
    }

    /// Checks that a window that ended ignores what still happens.
    fn check_silence(&mut self) {
        for scheduled in self.steps.drain().take(50) {
            if let SimStep::Window(event) = scheduled.step {
                self.window.handle(self.now, event);
            }
        }
        self.window.handle(self.now, WindowEvent::Tick);
        assert!(
            self.window.next_action().is_none(),
            "an action after the end"
        );
    }

    fn schedule(&mut self, delay: Duration, step: SimStep) {
        self.number += 1;
        let key = Reverse((self.now + delay, self.number));
        self.steps.push(Scheduled { key, step });
    }

    fn step(&mut self, step: SimStep) {
        match step {
            SimStep::Window(event) => self.send(event),
            SimStep::Cluster(event) => {
                if self.is_verbose {
                    println!("{:?} cluster {event:?}", self.now);
                }
                self.cluster
                    .handle(event, self.now, self.scenario, &mut self.rng);
            }
            SimStep::Tick => {
                if self.wake_at.is_some_and(|time| time <= self.now) {
                    self.wake_at = None;
                    self.send(WindowEvent::Tick);
                }
            }
            SimStep::Consume => self.consume(),
            SimStep::Supply => self.supply(),
        }
        self.collect_effects();
    }

    fn collect_effects(&mut self) {
        for effect in std::mem::take(&mut self.cluster.effects) {
            match effect {
                Effect::Later(delay, event) => self.schedule(delay, SimStep::Cluster(event)),
                Effect::Report(delay, event) => self.schedule(delay, SimStep::Window(event)),
            }
        }
    }

    /// Passes an event to the window, and does what the window asks for.
    fn send(&mut self, event: SimEvent) {
        if self.ending.is_some() {
            return;
        }
        if self.is_verbose {
            println!("{:?} event {event:?}", self.now);
        }
        match &event {
            WindowEvent::AttemptDone {
                attempt, results, ..
            } => {
                self.oracle.ended(*attempt, Some(results));
            }
            WindowEvent::AttemptFailed { attempt, .. } => self.oracle.ended(*attempt, None),
            WindowEvent::PoisonSettled { piece, result } => match result {
                Ok(result) => self.oracle.hold(*piece, result.bytes),
                Err(_) => self.oracle.broke(piece.sequence),
            },
            _ => {}
        }
        self.window.handle(self.now, event);
        self.act();
        if self.ending.is_none() {
            self.oracle.check(&self.window);
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.window.next_action() {
            if self.is_verbose {
                println!("{:?} action {action:?}", self.now);
            }
            assert!(!matches!(
                self.ending,
                Some(SimEnding::Finished | SimEnding::Failed(_))
            ));
            self.perform(action);
        }
        self.collect_effects();
    }

    fn perform(&mut self, action: WindowAction<RowRange, SimResult>) {
        match action {
            WindowAction::WantSegments {
                segments, bytes, ..
            } => {
                self.demand = Some((segments, bytes));
                let is_late = self.rng.chance(self.scenario.delayed_segments);
                let delay = if is_late {
                    self.rng.millis(0.1, 1000.0)
                } else {
                    Duration::ZERO
                };
                if is_late && self.rng.chance(0.8) {
                    self.schedule(
                        Duration::ZERO,
                        SimStep::Window(WindowEvent::SegmentsDelayed),
                    );
                }
                self.schedule(delay, SimStep::Supply);
            }
            WindowAction::Submit {
                attempt,
                lease,
                segments,
                order,
                avoid,
                ..
            } => {
                self.oracle.submitted(attempt, lease, &segments);
                let lease = Submission {
                    segments,
                    order,
                    avoid,
                };
                self.cluster.submit(attempt, lease, &mut self.rng);
            }
            WindowAction::Cancel { attempt } => {
                self.oracle.cancelled(attempt);
                self.cluster.cancel(attempt, self.scenario, &mut self.rng);
            }
            WindowAction::Deliver { sequence, results } => {
                self.oracle.check_delivery(sequence, &results);
                self.plan_consumption();
            }
            WindowAction::SplitSegment {
                piece,
                name,
                max_rows,
                ..
            } => {
                let mut pieces = Vec::new();
                let end = name.from + name.rows;
                let mut from = name.from;
                while from < end {
                    let rows = max_rows.min(end - from);
                    pieces.push(SegmentPiece {
                        name: RowRange { from, rows, ..name },
                        rows,
                    });
                    from += rows;
                }
                if self.rng.chance(0.1) {
                    pieces.clear();
                }
                let event = WindowEvent::SegmentSplit { piece, pieces };
                let delay = self.rng.millis(0.01, 10.0);
                self.schedule(delay, SimStep::Window(event));
            }
            WindowAction::SettlePoison {
                piece,
                name,
                workers,
                cause,
                ..
            } => {
                self.oracle.convict(name, self.cluster.deaths_under(name));
                self.settled += 1;
                let failure = SimResult {
                    range: name,
                    bytes: 100,
                    is_failure: true,
                };
                let rows = format!("{piece}");
                let result = if self.scenario.is_poison_data {
                    Ok(failure)
                } else {
                    Err(ClusterError::Poison {
                        rows,
                        workers,
                        cause,
                    })
                };
                self.schedule(
                    Duration::ZERO,
                    SimStep::Window(WindowEvent::PoisonSettled { piece, result }),
                );
            }
            WindowAction::WakeAt(time) => {
                self.wake_at = Some(time);
                self.schedule(time.saturating_sub(self.now), SimStep::Tick);
            }
            WindowAction::Finish => self.ending = Some(SimEnding::Finished),
            WindowAction::Fail(error) => self.ending = Some(SimEnding::Failed(error)),
        }
    }

    /// Adds the segments that the window wants, or fewer.
    fn supply(&mut self) {
        let Some((segments, bytes)) = self.demand.take() else {
            return;
        };
        let left = &self.scenario.segments[self.supplied..];
        let (mut wanted, mut size) = (0, 0);
        for segment in left.iter().take(segments) {
            if size >= bytes {
                break;
            }
            size += segment.info.bytes;
            wanted += 1;
        }
        let count = if self.rng.chance(0.2) {
            self.rng.range(1, wanted.max(1) as u64) as usize
        } else {
            wanted
        };
        let added = left[..count.min(left.len())]
            .iter()
            .map(|segment| segment.info.clone());
        let added: Vec<_> = added.collect();
        self.supplied += added.len();
        let is_last = self.supplied == self.scenario.segments.len();
        let is_empty = added.is_empty();
        if !is_empty {
            self.send(WindowEvent::SegmentsAdded(added));
        }
        if is_last && (is_empty || self.rng.chance(0.5)) {
            self.send(WindowEvent::EndOfStream);
        }
    }

    fn plan_consumption(&mut self) {
        if !self.is_consuming && !self.oracle.unconsumed.is_empty() {
            self.is_consuming = true;
            let mean = self.scenario.consume_ms * if self.scenario.is_bursty { 20.0 } else { 1.0 };
            let delay = self.rng.millis(mean * 0.1, mean * 3.0);
            self.schedule(delay, SimStep::Consume);
        }
    }

    fn consume(&mut self) {
        self.is_consuming = false;
        let waiting = self.oracle.unconsumed.len();
        for _ in 0..if self.scenario.is_bursty { waiting } else { 1 } {
            if self.ending.is_some() {
                return;
            }
            self.oracle.consume();
            self.send(WindowEvent::Consumed);
            self.reach_end();
        }
        self.plan_consumption();
    }

    /// Ends the run where the consumer does.
    fn reach_end(&mut self) {
        if self.has_reached_end || self.ending.is_some() {
            return;
        }
        match self.scenario.end {
            ConsumerEnd::Stop { after } if self.oracle.consumed == after => {
                self.has_reached_end = true;
                self.ending = Some(SimEnding::Stopped);
                self.window.handle(self.now, WindowEvent::Stop);
                self.act();
            }
            ConsumerEnd::Take { after, end } if self.oracle.consumed == after => {
                self.has_reached_end = true;
                self.oracle.skip_from(end);
                self.send(WindowEvent::SkipFrom(end));
            }
            _ => {}
        }
    }
}
