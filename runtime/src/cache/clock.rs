//! The time that the cache uses; tests replace it.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub(crate) trait Clock: fmt::Debug + Send + Sync {
    /// Time since a fixed moment; it never decreases.
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
        // With a clock before 1970 everything stored looks old, which at worst causes an eviction.
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis() as u64)
    }
}
