//! Workers that cannot compute a lease.

use super::machine::LeaseWindow;
use super::message::LeaseId;
use super::segment::ByteSize;
use crate::engine::WorkerId;
use crate::error::ClusterError;

impl<N: Clone, R: ByteSize> LeaseWindow<N, R> {
    pub(super) fn worker_unfit(&mut self, id: LeaseId, worker: WorkerId, cause: String) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        let is_repeated = lease.unfit.iter().any(|(other, _)| *other == worker);
        if !is_repeated {
            lease.unfit.push((worker, cause));
        }
        // An engine without another worker may run the lease on the same one again and again.
        let since = *lease.unfit_since.get_or_insert(self.now);
        let has_waited = self.now >= since + self.settings.unfit_grace;
        if lease.unfit.len() >= self.settings.max_unfit || is_repeated && has_waited {
            self.break_unfit(id);
        } else {
            self.restricted.insert(id);
            self.strand(id);
            self.reissue_prompt(id);
        }
    }

    /// Ends the run when it comes to a lease that no worker can compute.
    pub(super) fn break_unfit(&mut self, id: LeaseId) {
        let Some(lease) = self.remove_lease(id) else {
            return;
        };
        self.account.release(lease.bytes);
        let error = ClusterError::Unfit {
            sequence: lease.place().sequence,
            reasons: lease.unfit.clone(),
        };
        let freed = self.slots.break_piece(lease.place(), error);
        self.account.free(freed);
    }

    /// Looks for leases that have no worker any more, or have one again.
    pub(super) fn review_restricted(&mut self) {
        for id in self.restricted.clone() {
            if self.strand(id) {
                continue;
            }
            let Some(lease) = self.leases.get_mut(&id) else {
                continue;
            };
            if let Some(until) = lease.stranded_until.take() {
                self.timers.remove(&(until, id));
                self.timers.insert((self.now, id));
            }
        }
    }

    /// Returns `true` if all workers are unfit for a lease. The run ends then after some time,
    /// unless another worker comes.
    pub(super) fn strand(&mut self, id: LeaseId) -> bool {
        let Some(lease) = self.leases.get_mut(&id) else {
            return false;
        };
        let is_stranded = self.workers.are_all_in(&lease.unfit);
        if is_stranded {
            let until = self.now + self.settings.unfit_grace;
            let until = *lease.stranded_until.get_or_insert(until);
            self.timers.insert((until, id));
        }
        is_stranded
    }
}
