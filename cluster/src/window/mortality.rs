//! Evidence that a lease ends the workers that run it.

use std::collections::VecDeque;

use crate::engine::WorkerId;

/// Number of lost workers whose names are kept, so that each counts once.
const NAMES: usize = 64;

/// Assumed chance that an attempt is lost for another reason than its rows, at least.
const LEAST_CHANCE: f64 = 0.03;

/// Chance that all losses of a lease have other reasons, below which its rows are to blame.
/// Six losses have it in a cluster that loses no other workers.
const VERDICT: f64 = 1e-9;

/// A known worker that lost a lease this often again counts as one more.
const REPEATS: u32 = 5;

/// Workers that were lost while they ran a lease, or a lease of which it is a part.
#[derive(Debug, Clone, Default)]
pub(super) struct LeaseLosses {
    workers: Vec<WorkerId>,
    unnamed: u64,
    repeats: u32,
    cause: String,
}

impl LeaseLosses {
    /// Notes a loss. Returns `true` if it counts: the worker is another one than before.
    pub(super) fn add(&mut self, worker: Option<&WorkerId>, cause: String) -> bool {
        self.cause = cause;
        match worker {
            Some(worker) if self.workers.contains(worker) => {
                self.repeats += 1;
                if !self.repeats.is_multiple_of(REPEATS) {
                    return false;
                }
                self.unnamed += 1;
            }
            Some(worker) => self.workers.push(worker.clone()),
            None => self.unnamed += 1,
        }
        true
    }

    /// Returns the number of losses that count.
    pub(super) fn count(&self) -> u64 {
        self.workers.len() as u64 + self.unnamed
    }

    /// Returns the description of the last loss.
    pub(super) fn cause(&self) -> &str {
        &self.cause
    }
}

/// Losses and successes of all leases of a run.
#[derive(Debug, Default)]
pub(super) struct Mortality {
    lost: f64,
    done: f64,
    recent: VecDeque<WorkerId>,
}

impl Mortality {
    /// Notes that a worker was lost.
    pub(super) fn add_loss(&mut self, worker: Option<&WorkerId>) {
        if let Some(worker) = worker {
            if self.recent.contains(worker) {
                return;
            }
            if self.recent.len() == NAMES {
                self.recent.pop_front();
            }
            self.recent.push_back(worker.clone());
        }
        self.lost += 1.0;
    }

    /// Notes that a lease was computed.
    pub(super) fn add_success(&mut self) {
        self.done += 1.0;
        if self.done > 1000.0 {
            self.done /= 2.0;
            self.lost /= 2.0;
        }
    }

    /// Returns `true` if the rows of a lease are to blame for its losses. Workers may end for other
    /// reasons, as often as they end under other leases. All losses together must be very unlikely
    /// then.
    pub(super) fn convicts(&self, losses: &LeaseLosses) -> bool {
        let count = losses.count() as f64;
        let others = (self.lost - count).max(0.0);
        let chance = (others + 4.0 * LEAST_CHANCE) / (others + self.done + 4.0);
        chance.max(LEAST_CHANCE).powf(count) <= VERDICT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(number: u64) -> WorkerId {
        WorkerId(format!("w{number}"))
    }

    /// Returns the number of losses after which a lease is to blame.
    fn losses_until_verdict(mortality: &mut Mortality) -> u64 {
        let mut losses = LeaseLosses::default();
        for number in 0.. {
            if mortality.convicts(&losses) {
                break;
            }
            mortality.add_loss(Some(&worker(number)));
            assert!(losses.add(Some(&worker(number)), String::new()));
        }
        losses.count()
    }

    #[test]
    fn six_losses_convict_in_a_quiet_cluster() {
        assert_eq!(losses_until_verdict(&mut Mortality::default()), 6);
    }

    #[test]
    fn more_losses_are_needed_where_workers_end_anyway() {
        let mut mortality = Mortality::default();
        for number in 100..110 {
            mortality.add_loss(Some(&worker(number)));
            mortality.add_success();
        }
        assert!(losses_until_verdict(&mut mortality) > 20);
    }

    #[test]
    fn a_worker_counts_once_and_again_if_it_goes_on() {
        let mut losses = LeaseLosses::default();
        let counts = (0..6).filter(|_| losses.add(Some(&worker(1)), String::new()));
        assert_eq!(counts.count(), 2);
        assert!(losses.add(None, String::new()) && losses.add(None, String::new()));
        assert_eq!(losses.count(), 4);
    }
}
