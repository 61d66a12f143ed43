//! Second attempts of the lease at the head of the stream.

use std::time::Duration;

use super::lease::OpenLease;
use super::machine::LeaseWindow;
use super::segment::ByteSize;

/// Number of second attempts of a lease up to which the wait for the next one doubles.
const MAX_DOUBLINGS: u32 = 10;

impl<N: Clone, R: ByteSize> LeaseWindow<N, R> {
    /// Returns the time after which a lease is late.
    pub(super) fn late_after(&self, lease: &OpenLease<N>) -> Duration {
        let (weight, work) = (lease.weight, lease.estimated_work);
        let late = self.pace.late_after(weight, work, &self.settings);
        // Each attempt may cost another worker, and it may take seconds to hear of the loss.
        if lease.losses.is_any() {
            late.max(self.settings.first_hedge_delay)
        } else {
            late
        }
    }

    /// Issues the lease at the head a second time, if it is late. If it already runs twice, the
    /// new attempt replaces the older one.
    pub(super) fn hedge(&mut self) {
        self.late_at = None;
        let Some(id) = self.slots.head_lease() else {
            return;
        };
        let Some(lease) = self.leases.get(&id) else {
            return;
        };
        let Some(newest) = lease.attempts.last() else {
            let outage = self.outage.until(self.now).unwrap_or_default();
            self.late_at = self.overtakes_at().map(|time| time.max(outage));
            return;
        };
        let wait = self.late_after(lease);
        let wait = wait * (1 << lease.hedges.min(MAX_DOUBLINGS));
        let late_at = newest.since + wait;
        if self.now < late_at {
            self.late_at = Some(late_at);
            return;
        }
        if let Some(until) = self.outage.until(self.now) {
            self.late_at = Some(until);
            return;
        }
        let oldest = lease.attempts.first().map(|attempt| attempt.id);
        let has_two = lease.attempts.len() > 1;
        if let Some(attempt) = oldest.filter(|_| has_two) {
            self.cancel(attempt);
        }
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.hedges += 1;
        }
        self.counts.hedges += 1;
        self.submit(id);
        self.late_at = Some(self.now + wait * 2);
    }
}
