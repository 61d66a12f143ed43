//! The time for which a lease waits for a worker that has its data staged.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::LeaseStaging;

/// Longest time for which a lease waits until one more worker stages its data.
const MAX_PATIENCE: Duration = Duration::from_secs(2);

/// State of the patience of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatienceState {
    /// The lease never waits, because staging takes no time.
    Never,
    /// The lease may wait.
    Left,
    /// The lease has waited for as long as another worker needs to stage its data.
    Over,
}

/// The patience of a lease: from the time when it is first held back, it waits for at most as long as another worker
/// would need to stage its data. When another worker begins to stage the data for a lease that waited too long, the rest
/// waits anew: one more worker will serve them.
#[derive(Debug)]
pub struct Patience {
    staging: LeaseStaging,
    /// The time when the lease was first held back, and for how long it waits; unset while it was not held back.
    wait: OnceLock<(Instant, Duration)>,
}

impl Patience {
    /// Creates the patience of a lease for which a worker stages data.
    pub const fn new(staging: LeaseStaging) -> Self {
        Self {
            staging,
            wait: OnceLock::new(),
        }
    }

    /// Returns the state at `now`. `staged_at` is the time when a worker last began to stage the data.
    pub fn state(&self, now: Instant, staged_at: Option<Instant>) -> PatienceState {
        if self.staging.time.is_zero() {
            return PatienceState::Never;
        }
        match self.wait.get() {
            Some(&wait) if now >= end(wait, staged_at) => PatienceState::Over,
            _ => PatienceState::Left,
        }
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
    pub fn hold(&self, now: Instant, staged_at: Option<Instant>, slowdown: f64) -> Instant {
        let time = self.staging.time.min(MAX_PATIENCE).mul_f64(slowdown);
        let wait = self.wait.get_or_init(|| (now, time.min(MAX_PATIENCE)));
        end(*wait, staged_at)
    }
}

/// Returns the end of a wait that began at `since`, and begins anew whenever a worker begins to stage the data.
fn end((since, time): (Instant, Duration), staged_at: Option<Instant>) -> Instant {
    staged_at.map_or(since, |at| since.max(at)) + time
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
        assert_eq!(lease.state(after(9_000), None), PatienceState::Left);
        assert_eq!(lease.hold(after(1_000), None, 1.0), after(1_300));
        assert_eq!(lease.hold(after(1_200), None, 2.0), after(1_300));
        assert_eq!(lease.state(after(1_299), None), PatienceState::Left);
        assert_eq!(lease.state(after(1_300), None), PatienceState::Over);
        assert_eq!(patience(300).hold(start, None, 3.0), after(900));
        assert_eq!(patience(60_000).hold(start, None, 3.0), after(2_000));
        assert_eq!(patience(0).state(start, None), PatienceState::Never);
    }

    #[test]
    fn patience_begins_anew_when_another_worker_stages_the_data() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let lease = patience(300);
        assert_eq!(lease.hold(after(100), Some(start), 1.0), after(400));
        let staged_at = Some(after(400));
        assert_eq!(lease.state(after(699), staged_at), PatienceState::Left);
        assert_eq!(lease.hold(after(500), staged_at, 1.0), after(700));
        assert_eq!(lease.state(after(700), staged_at), PatienceState::Over);
    }
}
