//! The measured time that staging takes, in relation to its estimate.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Weight of earlier leases when a lease is measured. About the last ten leases count.
const MEMORY: f64 = 0.9;

/// Shortest estimate that is measured: shorter leases take most of their time for other things.
const MIN_ESTIMATE: Duration = Duration::from_millis(20);

/// Largest factor by which staging is expected to take longer than estimated.
const MAX_SLOWDOWN: f64 = 10.0;

/// Relation of the times that leases took which staged data to the estimates of staging. A disk that is slow, or cores
/// that are busy, make staging slower than its estimate.
#[derive(Debug, Default)]
pub struct StagingPace {
    sums: Mutex<Sums>,
}

/// Seconds of the last leases.
#[derive(Debug, Default)]
struct Sums {
    measured: f64,
    estimated: f64,
}

impl StagingPace {
    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a lease took the time `took`, and staged data for which `estimated` was estimated.
    pub fn measure(&self, estimated: Duration, took: Duration) {
        if estimated < MIN_ESTIMATE {
            return;
        }
        let mut sums = self.sums();
        sums.measured = sums.measured * MEMORY + took.as_secs_f64();
        sums.estimated = sums.estimated * MEMORY + estimated.as_secs_f64();
    }

    /// Returns the factor by which staging takes longer than estimated, at least 1.
    pub fn slowdown(&self) -> f64 {
        let sums = self.sums();
        if sums.estimated == 0.0 {
            return 1.0;
        }
        (sums.measured / sums.estimated).clamp(1.0, MAX_SLOWDOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_is_as_slow_as_the_last_leases_were() {
        let ms = Duration::from_millis;
        let pace = StagingPace::default();
        assert_eq!(pace.slowdown(), 1.0);
        pace.measure(ms(5), ms(5_000));
        assert_eq!(pace.slowdown(), 1.0, "the lease staged next to nothing");
        pace.measure(ms(100), ms(300));
        assert!((pace.slowdown() - 3.0).abs() < 1e-9);
        (0..100).for_each(|_| pace.measure(ms(100), ms(20)));
        assert_eq!(pace.slowdown(), 1.0);
        (0..100).for_each(|_| pace.measure(ms(100), ms(60_000)));
        assert_eq!(pace.slowdown(), MAX_SLOWDOWN);
    }
}
