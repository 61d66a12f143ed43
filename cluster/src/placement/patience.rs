//! The time for which a lease waits for a worker that has its data staged.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::LeaseStaging;

/// Longest time for which a lease waits.
const MAX_PATIENCE: Duration = Duration::from_secs(2);

/// The patience of a lease: from the time when it is first held back, it waits for at most as long as another worker
/// would need to stage its data.
#[derive(Debug)]
pub struct Patience {
    staging: LeaseStaging,
    /// The time from which the lease goes to any worker; unset while it was not held back.
    until: OnceLock<Instant>,
}

impl Patience {
    /// Creates the patience of a lease for which a worker stages data.
    pub const fn new(staging: LeaseStaging) -> Self {
        Self {
            staging,
            until: OnceLock::new(),
        }
    }

    /// Returns `true` if the lease may wait at `now`.
    pub fn is_left(&self, now: Instant) -> bool {
        !self.staging.time.is_zero() && self.until.get().is_none_or(|until| now < *until)
    }

    /// Returns `true` if a worker that ran the lease has most of the data of its affinity key.
    pub const fn stages_most(&self) -> bool {
        self.staging.is_most
    }

    /// Returns the estimated time of staging.
    pub const fn staging(&self) -> Duration {
        self.staging.time
    }

    /// Notes that the lease is held back although another worker has a free slot. Staging takes `slowdown` times as long as
    /// estimated. Returns the end of the patience.
    pub fn hold(&self, now: Instant, slowdown: f64) -> Instant {
        let time = self.staging.time.min(MAX_PATIENCE).mul_f64(slowdown);
        *self.until.get_or_init(|| now + time.min(MAX_PATIENCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patience(ms: u64) -> Patience {
        Patience::new(LeaseStaging {
            time: Duration::from_millis(ms),
            is_most: false,
        })
    }

    #[test]
    fn patience_begins_when_a_lease_is_held_back() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let lease = patience(300);
        assert!(lease.is_left(after(9_000)));
        assert_eq!(lease.hold(after(1_000), 1.0), after(1_300));
        assert_eq!(lease.hold(after(1_200), 2.0), after(1_300));
        assert!(lease.is_left(after(1_299)) && !lease.is_left(after(1_300)));
        assert_eq!(patience(300).hold(start, 3.0), after(900));
        assert_eq!(patience(60_000).hold(start, 3.0), after(2_000));
        assert!(!patience(0).is_left(start));
    }
}
