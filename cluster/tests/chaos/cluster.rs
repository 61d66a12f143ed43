//! An adversarial cluster: queues attempts, runs them, and loses them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_cluster::engine::{EngineError, WorkerId};
use forebay_cluster::window::{AttemptId, LeaseSegment, WindowEvent};

use crate::rng::SplitMix;
use crate::scenario::{MachineSpec, RowRange, Scenario, SimResult};

pub(crate) type SimEvent = WindowEvent<RowRange, SimResult>;

/// Events of the cluster itself.
#[derive(Debug, Clone)]
pub(crate) enum ClusterEvent {
    Arrived(AttemptId),
    Ended { attempt: AttemptId, machine: usize },
    Died { machine: usize, life: u32 },
    Restarted(usize),
    Killed,
    Stopped,
    SchedulerLost,
    SchedulerBack,
    Listed,
}

/// Events that the cluster causes, with their delays.
#[derive(Debug)]
pub(crate) enum Effect {
    Later(Duration, ClusterEvent),
    Report(Duration, SimEvent),
}

#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) segments: Vec<LeaseSegment<RowRange>>,
    pub(crate) order: u64,
    pub(crate) avoid: Vec<WorkerId>,
}

#[derive(Debug)]
struct Machine {
    spec: MachineSpec,
    life: u32,
    is_up: bool,
    stopped_until: Duration,
    running: Vec<AttemptId>,
}

#[derive(Debug)]
pub(crate) struct SimCluster {
    machines: Vec<Machine>,
    submissions: BTreeMap<AttemptId, Submission>,
    queue: Vec<AttemptId>,
    is_scheduler_up: bool,
    pub(crate) effects: Vec<Effect>,
    /// Ranges that a machine lost, with its number and life.
    losses: Vec<(usize, u32, Vec<RowRange>)>,
    /// Number of machines that died.
    pub(crate) deaths: u64,
}

impl SimCluster {
    pub(crate) fn new(scenario: &Scenario, rng: &mut SplitMix) -> Self {
        let machines = scenario.machines.iter().map(|spec| Machine {
            spec: spec.clone(),
            life: 0,
            is_up: true,
            stopped_until: Duration::ZERO,
            running: Vec::new(),
        });
        let mut cluster = Self {
            machines: machines.collect(),
            submissions: BTreeMap::new(),
            queue: Vec::new(),
            is_scheduler_up: true,
            effects: Vec::new(),
            losses: Vec::new(),
            deaths: 0,
        };
        let faults = scenario.faults;
        let kinds = [
            (faults.kills, ClusterEvent::Killed),
            (faults.stops, ClusterEvent::Stopped),
            (faults.outages, ClusterEvent::SchedulerLost),
        ];
        for (count, event) in kinds {
            let mut time = Duration::ZERO;
            for _ in 0..count {
                time += rng.millis(faults.interval_ms * 0.1, faults.interval_ms * 3.0);
                cluster.later(time, event.clone());
            }
        }
        cluster.later(rng.millis(0.1, 2000.0), ClusterEvent::Listed);
        cluster
    }

    /// Returns the number of machines that died and lost all rows of `range`.
    pub(crate) fn deaths_under(&self, range: RowRange) -> usize {
        let covers = |other: &RowRange| {
            other.sequence == range.sequence
                && other.from <= range.from
                && range.from + range.rows <= other.from + other.rows
        };
        let is_over = |index: usize, life: u32| {
            let machine = &self.machines[index];
            machine.life > life || !machine.is_up
        };
        let losses = self.losses.iter();
        let lives = losses
            .filter(|(index, life, ranges)| is_over(*index, *life) && ranges.iter().any(covers));
        let lives: BTreeSet<(usize, u32)> = lives.map(|(index, life, _)| (*index, *life)).collect();
        lives.len()
    }

    fn note_loss(&mut self, machine: usize, life: u32, attempt: AttemptId) {
        if let Some(lease) = self.submissions.get(&attempt) {
            let ranges = lease.segments.iter().map(|segment| segment.name);
            self.losses.push((machine, life, ranges.collect()));
        }
    }

    fn later(&mut self, delay: Duration, event: ClusterEvent) {
        self.effects.push(Effect::Later(delay, event));
    }

    fn fail(&mut self, delay: Duration, attempt: AttemptId, error: EngineError) {
        self.submissions.remove(&attempt);
        let event = WindowEvent::AttemptFailed { attempt, error };
        self.effects.push(Effect::Report(delay, event));
    }

    pub(crate) fn submit(&mut self, attempt: AttemptId, lease: Submission, rng: &mut SplitMix) {
        self.submissions.insert(attempt, lease);
        self.later(rng.millis(0.1, 3.0), ClusterEvent::Arrived(attempt));
    }

    pub(crate) fn cancel(&mut self, attempt: AttemptId, scenario: &Scenario, rng: &mut SplitMix) {
        if rng.chance(scenario.faults.late_results) {
            return; // The task goes on, and its result comes too late.
        }
        self.submissions.remove(&attempt);
        self.queue.retain(|other| *other != attempt);
        for machine in &mut self.machines {
            machine.running.retain(|other| *other != attempt);
        }
    }

    pub(crate) fn handle(
        &mut self,
        event: ClusterEvent,
        now: Duration,
        scenario: &Scenario,
        rng: &mut SplitMix,
    ) {
        match event {
            ClusterEvent::Arrived(attempt) => self.arrive(attempt, now, scenario, rng),
            ClusterEvent::Ended { attempt, machine } => {
                self.end_attempt(attempt, machine, now, scenario, rng);
            }
            ClusterEvent::Died { machine, life } => {
                if self.machines[machine].life == life {
                    self.kill(machine, scenario, rng);
                }
            }
            ClusterEvent::Restarted(machine) => {
                let machine = &mut self.machines[machine];
                machine.is_up = true;
                machine.life += 1;
                self.later(rng.millis(1.0, 2000.0), ClusterEvent::Listed);
            }
            ClusterEvent::Killed => {
                let machine = rng.below(self.machines.len() as u64) as usize;
                self.kill(machine, scenario, rng);
            }
            ClusterEvent::Stopped => {
                let machine = rng.below(self.machines.len() as u64) as usize;
                self.machines[machine].stopped_until = now + rng.millis(100.0, 60_000.0);
            }
            ClusterEvent::SchedulerLost => self.lose_scheduler(scenario, rng),
            ClusterEvent::SchedulerBack => self.is_scheduler_up = true,
            ClusterEvent::Listed => {
                let up = self
                    .machines
                    .iter()
                    .enumerate()
                    .filter(|(_, machine)| machine.is_up);
                let names = up
                    .map(|(index, machine)| name_of(index, machine.life))
                    .collect();
                let event = WindowEvent::WorkersChanged(names);
                self.effects.push(Effect::Report(Duration::ZERO, event));
            }
        }
        self.assign(now, scenario, rng);
    }

    fn arrive(
        &mut self,
        attempt: AttemptId,
        now: Duration,
        scenario: &Scenario,
        rng: &mut SplitMix,
    ) {
        if !self.submissions.contains_key(&attempt) {
            return;
        }
        let delay = rng.millis(0.1, 50.0);
        let cause = "test".to_owned();
        if scenario.faults.refuses_at.is_some_and(|time| now >= time) {
            self.fail(delay, attempt, EngineError::Refused { cause });
        } else if !self.is_scheduler_up || rng.chance(scenario.faults.single_unavailable) {
            self.fail(delay, attempt, EngineError::Unavailable { cause });
        } else {
            self.queue.push(attempt);
        }
    }

    /// Starts waiting attempts on machines with free slots, mostly in stream order.
    fn assign(&mut self, now: Duration, scenario: &Scenario, rng: &mut SplitMix) {
        if !self.is_scheduler_up {
            return;
        }
        let submissions = &self.submissions;
        self.queue
            .sort_by_key(|id| (submissions.get(id).map(|lease| lease.order), *id));
        if self.queue.len() > 1 && rng.chance(0.1) {
            let last = self.queue.len() - 1;
            self.queue.swap(0, last);
        }
        for attempt in std::mem::take(&mut self.queue) {
            let Some(lease) = self.submissions.get(&attempt) else {
                continue;
            };
            let is_free = |index: &usize| {
                let machine = &self.machines[*index];
                let name = name_of(*index, machine.life);
                machine.is_up
                    && machine.running.len() < machine.spec.slots
                    && !lease.avoid.contains(&name)
            };
            let free: Vec<usize> = (0..self.machines.len()).filter(is_free).collect();
            if free.is_empty() {
                self.queue.push(attempt);
            } else {
                let machine = rng.pick(&free);
                self.start(attempt, machine, now, scenario, rng);
            }
        }
    }

    fn start(
        &mut self,
        attempt: AttemptId,
        index: usize,
        now: Duration,
        scenario: &Scenario,
        rng: &mut SplitMix,
    ) {
        let machine = &mut self.machines[index];
        machine.running.push(attempt);
        let mut time = rng.millis(0.1, 5.0);
        let mut is_poison = false;
        let lease = &self.submissions[&attempt];
        for segment in &lease.segments {
            let range = segment.name;
            let first = (range.sequence, range.from);
            let last = (range.sequence, range.from + range.rows);
            is_poison |= scenario.poison.range(first..last).next().is_some();
        }
        time += self.time_of(lease, index, scenario);
        let machine = &self.machines[index];
        let wait = machine.stopped_until.saturating_sub(now);
        let event = if is_poison {
            time = time.mul_f64(rng.unit());
            ClusterEvent::Died {
                machine: index,
                life: machine.life,
            }
        } else {
            ClusterEvent::Ended {
                attempt,
                machine: index,
            }
        };
        self.later(wait + time, event);
    }

    /// Returns the time that a machine takes for a lease.
    fn time_of(&self, lease: &Submission, machine: usize, scenario: &Scenario) -> Duration {
        let times = lease.segments.iter().map(|segment| {
            let whole = &scenario.segments[segment.name.sequence as usize];
            let share = segment.name.rows as f64 / whole.info.rows as f64;
            whole.work.mul_f64(share)
        });
        let time: Duration = times.sum();
        time.mul_f64(self.machines[machine].spec.slowness)
    }

    fn end_attempt(
        &mut self,
        attempt: AttemptId,
        index: usize,
        now: Duration,
        scenario: &Scenario,
        rng: &mut SplitMix,
    ) {
        let machine = &mut self.machines[index];
        let Some(place) = machine.running.iter().position(|other| *other == attempt) else {
            return;
        };
        if now < machine.stopped_until {
            let delay = machine.stopped_until - now;
            return self.later(
                delay,
                ClusterEvent::Ended {
                    attempt,
                    machine: index,
                },
            );
        }
        machine.running.remove(place);
        let (worker, unfit_from) = (name_of(index, machine.life), machine.spec.unfit_from);
        let delay = rng.millis(0.05, 20.0);
        let Some(lease) = self.submissions.get(&attempt) else {
            return;
        };
        let cause = "test".to_owned();
        let is_unfit = |segment: &LeaseSegment<RowRange>| {
            unfit_from.is_some_and(|from| segment.name.sequence >= from)
        };
        if lease.segments.iter().any(is_unfit) {
            return self.fail(delay, attempt, EngineError::WorkerUnfit { worker, cause });
        }
        if rng.chance(scenario.faults.lost_results) {
            let (worker, life) = (Some(worker), machine.life);
            self.note_loss(index, life, attempt);
            return self.fail(delay, attempt, EngineError::WorkerLost { worker, cause });
        }
        if rng.chance(scenario.faults.silent_losses) {
            return;
        }
        let results = lease.segments.iter().map(|segment| {
            let range = segment.name;
            let whole = &scenario.segments[range.sequence as usize];
            SimResult {
                range,
                bytes: whole.bytes * range.rows / whole.info.rows,
                is_failure: false,
            }
        });
        let done = WindowEvent::AttemptDone {
            attempt,
            worker,
            results: results.collect(),
            took: self.time_of(lease, index, scenario),
        };
        if rng.chance(scenario.faults.repeats) {
            let later = delay + rng.millis(0.05, 5000.0);
            self.effects.push(Effect::Report(later, done.clone()));
        }
        self.effects.push(Effect::Report(delay, done));
    }

    fn kill(&mut self, index: usize, scenario: &Scenario, rng: &mut SplitMix) {
        let machine = &mut self.machines[index];
        if !machine.is_up {
            return;
        }
        machine.is_up = false;
        self.deaths += 1;
        machine.stopped_until = Duration::ZERO;
        let name = name_of(index, machine.life);
        let running = std::mem::take(&mut machine.running);
        let life = machine.life;
        for attempt in running {
            self.note_loss(index, life, attempt);
            let is_named = !rng.chance(scenario.faults.unnamed_losses);
            let error = EngineError::WorkerLost {
                worker: is_named.then(|| name.clone()),
                cause: "killed".into(),
            };
            self.fail(rng.millis(1.0, 3000.0), attempt, error);
        }
        self.later(rng.millis(10.0, 20_000.0), ClusterEvent::Restarted(index));
        self.later(rng.millis(1.0, 3000.0), ClusterEvent::Listed);
    }

    fn lose_scheduler(&mut self, scenario: &Scenario, rng: &mut SplitMix) {
        if !self.is_scheduler_up {
            return;
        }
        self.is_scheduler_up = false;
        self.later(
            rng.millis(10.0, scenario.faults.outage_ms.max(11.0)),
            ClusterEvent::SchedulerBack,
        );
        let mut lost = std::mem::take(&mut self.queue);
        for machine in &mut self.machines {
            // Some tasks go on, and the client has their results from the workers themselves.
            let forgotten = machine.running.extract_if(.., |_| rng.chance(0.7));
            lost.extend(forgotten);
        }
        for attempt in lost {
            let cause = "scheduler killed".to_owned();
            let delay = rng.millis(0.1, 1000.0);
            self.fail(delay, attempt, EngineError::Unavailable { cause });
        }
    }
}

fn name_of(machine: usize, life: u32) -> WorkerId {
    WorkerId(format!("m{machine}.{life}"))
}
