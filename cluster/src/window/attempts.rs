//! Attempts of leases: submission, results and failures.

use std::time::Duration;

use super::budget::ResultBytes;
use super::lease::OpenLease;
use super::lease::RunningAttempt;
use super::machine::LeaseWindow;
use super::message::{AttemptId, LeaseId, WindowAction};
use super::outage::backoff;
use super::pace::LeaseMeasure;
use super::segment::ByteSize;
use crate::engine::{EngineError, LeaseStaging, WorkerId};
use crate::error::ClusterError;

/// Number of failures of a lease after which it is not issued again at once.
const PROMPT_FAILURES: u32 = 4;

/// Odd number by which the affinity keys of a lease's attempts differ, from the golden ratio.
const AFFINITY_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl<N: Clone, R: ByteSize> LeaseWindow<N, R> {
    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn add_lease(&mut self, lease: OpenLease<N>) -> LeaseId {
        let id = LeaseId(self.new_id());
        for segment in &lease.segments {
            self.slots.set_lease(segment.id, Some(id));
        }
        self.trusted += usize::from(!lease.is_suspect());
        if !lease.unfit.is_empty() {
            self.restricted.insert(id);
        }
        self.leases.insert(id, lease);
        id
    }

    /// Removes a lease and cancels its attempts. The lease's reservation stays.
    pub(super) fn remove_lease(&mut self, id: LeaseId) -> Option<OpenLease<N>> {
        self.cancel_all(id);
        let lease = self.leases.remove(&id)?;
        self.ready.remove(&(lease.place(), id));
        self.serial.remove(&(lease.place(), id));
        self.restricted.remove(&id);
        self.trusted -= usize::from(!lease.is_suspect());
        Some(lease)
    }

    /// Starts an attempt to compute a lease.
    pub(super) fn submit(&mut self, id: LeaseId) {
        let attempt = AttemptId(self.new_id());
        if self.strand(id) {
            self.running_serial.remove(&id);
            return;
        }
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        let running = lease.attempts.len() as u64;
        if running > 0 {
            self.account.reserve_second(lease.bytes);
        }
        lease.attempts.push(RunningAttempt {
            id: attempt,
            since: self.now,
        });
        let shift = AFFINITY_STEP.wrapping_mul(u64::from(lease.hedges));
        let action = WindowAction::Submit {
            attempt,
            lease: id,
            segments: lease.segments.clone(),
            affinity: lease.affinity.wrapping_add(shift),
            // A second attempt must not wait.
            staging: match running {
                0 => lease.staging,
                _ => LeaseStaging::default(),
            },
            order: lease.place().sequence,
            avoid: self.workers.avoided(&lease.unfit),
        };
        self.attempts.insert(attempt, id);
        self.counts.submitted += 1;
        self.ask(action);
    }

    /// Forgets a running attempt. Returns its lease and the time of its submission.
    fn take_attempt(&mut self, attempt: AttemptId) -> Option<(LeaseId, Duration)> {
        let id = self.attempts.remove(&attempt)?;
        let lease = self.leases.get_mut(&id)?;
        let index = lease
            .attempts
            .iter()
            .position(|other| other.id == attempt)?;
        if lease.attempts.len() > 1 {
            self.account.release_second(lease.bytes);
        }
        let since = lease.attempts.remove(index).since;
        if lease.attempts.is_empty() {
            self.running_serial.remove(&id);
        }
        Some((id, since))
    }

    /// Cancels the attempts of a lease.
    pub(super) fn cancel_all(&mut self, id: LeaseId) {
        while let Some(attempt) = self
            .leases
            .get(&id)
            .and_then(|lease| lease.attempts.first())
        {
            self.cancel(attempt.id);
        }
    }

    pub(super) fn cancel(&mut self, attempt: AttemptId) {
        if self.take_attempt(attempt).is_some() {
            self.ask(WindowAction::Cancel { attempt });
        }
    }

    pub(super) fn attempt_done(
        &mut self,
        attempt: AttemptId,
        worker: WorkerId,
        results: Vec<R>,
        took: Duration,
    ) {
        let segments_of = |id| self.leases.get(id).map(|lease| lease.segments.len());
        match self.attempts.get(&attempt).and_then(segments_of) {
            None => return self.counts.duplicates += results.len() as u64,
            Some(expected) if expected != results.len() => {
                let found = results.len();
                let cause = format!("it returned {found} results for {expected} segments");
                return self.attempt_failed(attempt, EngineError::WorkerUnfit { worker, cause });
            }
            Some(_) => {}
        }
        let Some((id, since)) = self.take_attempt(attempt) else {
            return;
        };
        let Some(lease) = self.remove_lease(id) else {
            return;
        };
        self.outage.end();
        let is_suspect = lease.is_suspect();
        let suspects = || self.leases.values().chain(self.splitting.values());
        let is_explained = |worker: &WorkerId| {
            suspects().any(|other| other.is_suspect() && other.losses.has(worker))
        };
        self.mortality
            .add_success(&lease.losses, &worker, is_suspect, is_explained);
        for (unfit, cause) in &lease.unfit {
            if *unfit != worker {
                self.workers.set_aside(unfit.clone(), cause.clone());
            }
        }
        self.account.release(lease.bytes);
        let mut bytes = 0u64;
        for (segment, result) in lease.segments.iter().zip(results) {
            let size = result.bytes();
            bytes = bytes.saturating_add(size);
            let held = ResultBytes::new(size, segment.bytes);
            if self.slots.complete(segment.id, result, held) {
                self.account.hold(held);
            }
        }
        if !is_suspect {
            self.pace.measure(&LeaseMeasure {
                segments: lease.segments.len(),
                estimated_bytes: lease.estimated_bytes,
                bytes,
                estimated_work: lease.estimated_work,
                work: took,
                weight: lease.weight,
                turnaround: self.now.saturating_sub(since),
            });
        }
    }

    pub(super) fn attempt_failed(&mut self, attempt: AttemptId, error: EngineError) {
        let Some((id, since)) = self.take_attempt(attempt) else {
            return;
        };
        self.counts.failed += 1;
        match error {
            EngineError::Refused { cause } => self.fail(ClusterError::Refused { cause }),
            EngineError::Unavailable { cause } => {
                let away = self.outage.report(self.now, &self.settings);
                if away > self.settings.max_outage {
                    return self.fail(ClusterError::Unavailable { away, cause });
                }
                self.reissue_now(id);
            }
            EngineError::WorkerUnfit { worker, cause } => self.worker_unfit(id, worker, cause),
            EngineError::WorkerLost { worker, cause } => {
                self.worker_lost(id, since, worker, cause);
            }
        }
    }

    /// Issues a lease again, unless another attempt runs. A lease that fails often waits before.
    pub(super) fn reissue_prompt(&mut self, id: LeaseId) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        lease.failures += 1;
        let delay = match lease.failures.checked_sub(PROMPT_FAILURES) {
            None => Duration::ZERO,
            Some(repetition) => backoff(&self.settings, repetition),
        };
        self.reissue(id, delay);
    }

    /// Issues a lease again as soon as possible, unless another attempt runs.
    pub(super) fn reissue_now(&mut self, id: LeaseId) {
        self.reissue(id, Duration::ZERO);
    }

    fn reissue(&mut self, id: LeaseId, delay: Duration) {
        let Some(lease) = self.leases.get(&id) else {
            return;
        };
        if !lease.attempts.is_empty() {
            return;
        }
        let key = (lease.place(), id);
        if delay > Duration::ZERO {
            self.timers.insert((self.now + delay, id));
        } else if self.is_serial(lease) {
            self.serial.insert(key);
        } else {
            self.ready.insert(key);
        }
    }

    /// Submits the leases that wait, in stream order.
    pub(super) fn submit_waiting(&mut self) {
        if self.outage.until(self.now).is_some() {
            return;
        }
        while let Some((place, id)) = self.ready.pop_first() {
            match self.leases.get(&id) {
                Some(lease) if !lease.attempts.is_empty() => {}
                Some(lease) if self.is_serial(lease) => {
                    self.serial.insert((place, id));
                }
                _ => self.submit(id),
            }
        }
        self.submit_serial();
    }

    /// Issues the leases whose time has come.
    pub(super) fn run_timers(&mut self) {
        while let Some((time, id)) = self
            .timers
            .first()
            .copied()
            .filter(|(time, _)| *time <= self.now)
        {
            self.timers.remove(&(time, id));
            let Some(lease) = self.leases.get_mut(&id) else {
                continue;
            };
            let is_stranded = lease.stranded_until == Some(time);
            if is_stranded && self.workers.are_all_in(&lease.unfit) {
                self.break_unfit(id);
                continue;
            }
            if is_stranded {
                lease.stranded_until = None;
            }
            if lease.judged_until.is_some() && lease.attempts.is_empty() {
                self.judge(id);
            } else {
                self.reissue_now(id);
            }
        }
    }
}
