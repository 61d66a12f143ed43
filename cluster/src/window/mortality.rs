//! Evidence that a lease ends the workers that run it.

use std::collections::VecDeque;

use crate::engine::WorkerId;

/// Number of lost workers whose names are kept.
const NAMES: usize = 64;

/// Assumed chance that an attempt is lost for another reason than its rows, at least.
const LEAST_CHANCE: f64 = 0.03;

/// Number of leases after which the weight of earlier ones is halved.
const MEMORY: f64 = 64.0;

/// Number of leases with [`LEAST_CHANCE`] that count before the first lease of the run.
const PRIOR: f64 = 4.0;

/// Chance that all losses of a lease have other reasons, below which its rows are to blame.
/// Six losses have it in a cluster that loses no other workers.
const VERDICT: f64 = 1e-9;

/// A worker that lost a lease this often again counts as one more.
const REPEATS: u32 = 5;

/// Workers that were lost while they ran a lease, or a lease of which it is a part.
#[derive(Debug, Clone, Default)]
pub(super) struct LeaseLosses {
    workers: Vec<WorkerId>,
    unnamed: u64,
    repeats: u32,
    /// Number of entries of `workers` that are older than the lease.
    inherited: usize,
    /// Losses with unnamed workers since the lease was cut.
    own_unnamed: u64,
    cause: String,
}

impl LeaseLosses {
    /// Returns the losses of a part of the lease.
    pub(super) fn of_part(&self) -> Self {
        Self {
            inherited: self.workers.len(),
            own_unnamed: 0,
            ..self.clone()
        }
    }

    /// Returns `true` if `worker` was lost.
    pub(super) fn has(&self, worker: &WorkerId) -> bool {
        self.workers.contains(worker)
    }

    /// Returns `true` if a worker was lost.
    pub(super) fn is_any(&self) -> bool {
        !self.workers.is_empty() || self.unnamed > 0
    }

    /// Returns the description of the last loss.
    pub(super) fn cause(&self) -> &str {
        &self.cause
    }
}

/// Losses and successes of all leases of a run.
#[derive(Debug, Default)]
pub(super) struct Mortality {
    /// Losses that no suspect explains.
    lost: f64,
    done: f64,
    /// Workers that were lost, and `true` if `lost` counts them.
    recent: VecDeque<(WorkerId, bool)>,
    /// Workers that returned a result after they were reported as lost: they lost only a result.
    survivors: VecDeque<WorkerId>,
}

impl Mortality {
    /// Returns the number of workers that ended under a lease.
    pub(super) fn count(&self, losses: &LeaseLosses) -> u64 {
        self.count_gone(losses, |_| true)
    }

    fn count_gone(&self, losses: &LeaseLosses, is_gone: impl Fn(&WorkerId) -> bool) -> u64 {
        let ended = |worker: &&WorkerId| !self.survivors.contains(worker) && is_gone(worker);
        losses.workers.iter().filter(ended).count() as u64 + losses.unnamed
    }

    /// Notes a loss of a lease. Returns `true` if it counts: the worker is another one than before.
    pub(super) fn add_loss(
        &mut self,
        losses: &mut LeaseLosses,
        worker: Option<WorkerId>,
        cause: String,
        is_suspect: bool,
    ) -> bool {
        losses.cause = cause;
        let Some(worker) = worker else {
            losses.unnamed += 1;
            losses.own_unnamed += 1;
            self.lost += f64::from(u8::from(!is_suspect));
            return true;
        };
        if losses.workers.contains(&worker) || self.survivors.contains(&worker) {
            losses.repeats += 1;
            let is_counted = losses.repeats.is_multiple_of(REPEATS);
            losses.unnamed += u64::from(is_counted);
            return is_counted;
        }
        losses.workers.push(worker.clone());
        match self.recent.iter_mut().find(|(other, _)| *other == worker) {
            // A suspect explains the losses of all leases that its worker ran.
            Some((_, is_counted)) if is_suspect && *is_counted => {
                *is_counted = false;
                self.lost = (self.lost - 1.0).max(0.0);
            }
            Some(_) => {}
            None => {
                self.lost += f64::from(u8::from(!is_suspect));
                if self.recent.len() == NAMES {
                    self.recent.pop_front();
                }
                self.recent.push_back((worker, !is_suspect));
            }
        }
        true
    }

    /// Notes that a lease becomes a suspect, which explains its losses.
    pub(super) fn suspect(&mut self, losses: &LeaseLosses) {
        let mut explained = losses.unnamed as f64;
        for (worker, is_counted) in &mut self.recent {
            if *is_counted && losses.workers.contains(worker) {
                *is_counted = false;
                explained += 1.0;
            }
        }
        self.lost = (self.lost - explained).max(0.0);
    }

    /// Notes that `worker` computed a lease, whose losses then have other reasons. A suspect that
    /// lost the same worker is such a reason, which `is_explained` says.
    pub(super) fn add_success(
        &mut self,
        losses: &LeaseLosses,
        worker: &WorkerId,
        is_suspect: bool,
        is_explained: impl Fn(&WorkerId) -> bool,
    ) {
        if is_suspect {
            let own = losses.workers.iter().skip(losses.inherited);
            let unexplained = own.filter(|worker| !is_explained(worker)).count() as u64;
            self.lost += (unexplained + losses.own_unnamed) as f64;
        }
        if let Some(index) = self.recent.iter().position(|(other, _)| other == worker) {
            if let Some((worker, true)) = self.recent.remove(index) {
                self.lost = (self.lost - 1.0).max(0.0);
                self.survive(worker);
            } else {
                self.survive(worker.clone());
            }
        }
        // Pieces of suspects are too small to have had the same chance to be lost.
        self.done += f64::from(u8::from(!is_suspect));
        if self.done > MEMORY {
            self.done /= 2.0;
            self.lost /= 2.0;
        }
    }

    fn survive(&mut self, worker: WorkerId) {
        if self.survivors.len() == NAMES {
            self.survivors.pop_front();
        }
        self.survivors.push_back(worker);
    }

    /// Returns `true` if the rows of a lease are to blame for its losses with workers for which
    /// `is_gone` holds. Workers may end for other
    /// reasons, as often as they end under other leases. All losses together must be very unlikely
    /// then.
    pub(super) fn convicts(
        &self,
        losses: &LeaseLosses,
        is_gone: impl Fn(&WorkerId) -> bool,
    ) -> bool {
        let chance = (self.lost + PRIOR * LEAST_CHANCE) / (self.lost + self.done + PRIOR);
        let count = self.count_gone(losses, is_gone) as f64;
        chance.max(LEAST_CHANCE).powf(count) <= VERDICT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(number: u64) -> WorkerId {
        WorkerId(format!("w{number}"))
    }

    fn lose(
        mortality: &mut Mortality,
        losses: &mut LeaseLosses,
        number: u64,
        is_suspect: bool,
    ) -> bool {
        mortality.add_loss(losses, Some(worker(number)), String::new(), is_suspect)
    }

    /// Returns the number of losses after which a lease is to blame. The lease is a suspect from
    /// the third on.
    fn losses_until_verdict(mortality: &mut Mortality) -> u64 {
        let mut losses = LeaseLosses::default();
        for number in 0.. {
            if mortality.convicts(&losses, |_| true) {
                break;
            }
            assert!(lose(mortality, &mut losses, number, number >= 3));
            if number == 2 {
                mortality.suspect(&losses);
            }
        }
        mortality.count(&losses)
    }

    #[test]
    fn six_losses_convict_in_a_quiet_cluster() {
        assert_eq!(losses_until_verdict(&mut Mortality::default()), 6);
    }

    #[test]
    fn losses_of_leases_on_the_same_workers_are_no_excuse() {
        let mut mortality = Mortality::default();
        for number in 0..6 {
            lose(&mut mortality, &mut LeaseLosses::default(), number, false);
        }
        assert_eq!(losses_until_verdict(&mut mortality), 6);
    }

    #[test]
    fn more_losses_are_needed_where_workers_end_anyway() {
        let mut mortality = Mortality::default();
        for number in 100..110 {
            let mut losses = LeaseLosses::default();
            lose(&mut mortality, &mut losses, number, false);
            mortality.add_success(&losses, &worker(0), false, |_| false);
        }
        assert!(losses_until_verdict(&mut mortality) > 20);
    }

    #[test]
    fn a_suspect_that_is_computed_at_last_had_bad_luck() {
        let mut mortality = Mortality::default();
        let mut losses = LeaseLosses::default();
        for number in 100..110 {
            lose(&mut mortality, &mut losses, number, true);
        }
        mortality.add_success(&losses, &worker(0), true, |_| false);
        assert!(losses_until_verdict(&mut mortality) > 20);
    }

    #[test]
    fn a_worker_that_returns_a_result_later_lost_only_a_result() {
        let mut mortality = Mortality::default();
        let mut losses = LeaseLosses::default();
        assert!(lose(&mut mortality, &mut losses, 1, false));
        assert!(lose(&mut mortality, &mut losses, 2, false));
        mortality.add_success(&LeaseLosses::default(), &worker(1), false, |_| false);
        assert_eq!(mortality.count(&losses), 1);
        assert!(!lose(&mut mortality, &mut losses, 1, false));
    }

    #[test]
    fn a_worker_counts_once_and_again_if_it_goes_on() {
        let mut mortality = Mortality::default();
        let mut losses = LeaseLosses::default();
        let counts = (0..6).filter(|_| lose(&mut mortality, &mut losses, 1, false));
        assert_eq!(counts.count(), 2);
        for _ in 0..2 {
            assert!(mortality.add_loss(&mut losses, None, String::new(), false));
        }
        assert_eq!(mortality.count(&losses), 4);
    }
}
