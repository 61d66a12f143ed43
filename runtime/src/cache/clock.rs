//! Time, as the cache takes it: tests bring their own.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where time comes from.
pub(crate) trait Clock: fmt::Debug + Send + Sync {
    /// Time since some moment; never goes back.
    fn elapsed(&self) -> Duration;
    /// Milliseconds since 1970.
    fn unix_ms(&self) -> u64;
}

/// The clock of the system.
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
        // A clock before 1970 makes every stamp look old, which costs no more than an eviction.
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis() as u64)
    }
}
