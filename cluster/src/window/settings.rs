//! Settings of a window of leases.

use std::time::Duration;

const MB: u64 = 1 << 20;

/// Settings of a [`LeaseWindow`](super::LeaseWindow).
#[derive(Debug, Clone)]
pub struct WindowSettings {
    /// Bound of the bytes of leases in flight and of results that the host has not consumed. The
    /// documentation of [the module](super) has the exact bound.
    pub max_bytes: u64,
    /// Estimated output at which a lease is large enough.
    pub min_lease_bytes: u64,
    /// Estimated output that a lease of several segments never exceeds.
    pub max_lease_bytes: u64,
    /// Estimated computing time at which a lease is large enough.
    pub min_lease_work: Duration,
    /// Number of segments at which a lease is large enough.
    pub max_lease_segments: usize,
    /// Number of leases in flight for each worker.
    pub leases_per_worker: usize,
    /// Shortest time after which the lease at the head is late.
    pub hedge_delay: Duration,
    /// Time after which the lease at the head is late, while no lease was measured yet.
    pub first_hedge_delay: Duration,
    /// Multiple of its expected time after which the lease at the head is late.
    pub hedge_factor: u32,
    /// Number of unfit workers after which a lease ends the run.
    pub max_unfit: usize,
    /// Time that a lease waits for another worker if all workers are unfit for it.
    pub unfit_grace: Duration,
    /// Number of workers that may end while they run a lease before the lease is split.
    pub max_losses: u64,
    /// First delay before a lease is issued again, if it is not issued at once. Each further delay
    /// is twice as long.
    pub retry_delay: Duration,
    /// Longest delay before a lease is issued again.
    pub max_retry_delay: Duration,
    /// Time without a scheduler after which the run ends.
    pub max_outage: Duration,
}

impl WindowSettings {
    /// Estimated output that a lease of several segments never exceeds. The window leaves as much
    /// of its bound to the lease at the head.
    pub fn headroom(&self) -> u64 {
        self.max_lease_bytes.min(self.max_bytes / 4)
    }

    /// Bound of the bytes in use, up to which leases behind the head are submitted.
    pub fn limit(&self) -> u64 {
        self.max_bytes - self.headroom()
    }

    /// Estimated output at which a lease is large enough under the window's bound.
    pub(super) fn lease_goal(&self) -> u64 {
        self.min_lease_bytes.min(self.max_bytes / 8).max(1)
    }
}

impl Default for WindowSettings {
    fn default() -> Self {
        Self {
            max_bytes: 512 * MB,
            min_lease_bytes: 16 * MB,
            max_lease_bytes: 64 * MB,
            min_lease_work: Duration::from_millis(50),
            max_lease_segments: 4096,
            leases_per_worker: 4,
            hedge_delay: Duration::from_secs(1),
            first_hedge_delay: Duration::from_secs(5),
            hedge_factor: 3,
            max_unfit: 3,
            unfit_grace: Duration::from_secs(60),
            max_losses: 3,
            retry_delay: Duration::from_millis(50),
            max_retry_delay: Duration::from_secs(1),
            max_outage: Duration::from_secs(600),
        }
    }
}
