//! The clock of the cache, which tests replace by a manual one.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock: a monotonic time and the wall-clock time.
pub(crate) trait Clock: fmt::Debug + Send + Sync {
    /// Returns the time since a fixed moment. The returned time never decreases.
    fn elapsed(&self) -> Duration;
    /// Returns the wall-clock time in milliseconds since 1970.
    fn unix_ms(&self) -> u64;
}

/// The clock of the operating system.
#[derive(Debug)]
pub(super) struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn unix_ms(&self) -> u64 {
        // A system clock before 1970 gives 0. Rows that are used at time 0 look old later, so at
        // worst these rows are evicted.
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis() as u64)
    }
}
