//! What a store is measured to read and write while it is used.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bytes of history that are kept at most, so that a store that became slower is soon known to be.
const HISTORY_BYTES: u64 = 4 << 30;

/// What one request to a store carries, in bytes a second. Requests side by side may carry more
/// together; a directory's figures include what the system holds in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bandwidth {
    /// Writing; `None` until something was written.
    pub write_bps: Option<u64>,
    /// Reading; `None` until something was read.
    pub read_bps: Option<u64>,
}

/// Bytes that went one way, and the time that took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Nanoseconds, summed over requests.
    pub nanos: u64,
}

impl Traffic {
    fn bps(self) -> Option<u64> {
        let bps = u128::from(self.bytes) * 1_000_000_000 / u128::from(self.nanos.max(1));
        (self.bytes > 0 && self.nanos > 0).then_some(u64::try_from(bps).unwrap_or(u64::MAX))
    }

    fn plus(self, more: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(more.bytes),
            nanos: self.nanos.saturating_add(more.nanos),
        }
    }

    /// The same rate, of at most [`HISTORY_BYTES`].
    fn aged(self) -> Self {
        match self.bytes.div_ceil(HISTORY_BYTES) {
            0 | 1 => self,
            times => Self {
                bytes: self.bytes / times,
                nanos: self.nanos / times,
            },
        }
    }
}

/// What is kept with a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct History {
    pub(super) written: Traffic,
    pub(super) read: Traffic,
}

/// Counts what goes through a store.
#[derive(Debug, Default)]
pub(super) struct Meter {
    history: History,
    written: Counter,
    read: Counter,
}

#[derive(Debug, Default)]
struct Counter {
    bytes: AtomicU64,
    nanos: AtomicU64,
}

impl Counter {
    fn add(&self, bytes: u64, time: Duration) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            bytes: self.bytes.load(Ordering::Relaxed),
            nanos: self.nanos.load(Ordering::Relaxed),
        }
    }
}

impl Meter {
    pub(super) fn new(history: History) -> Self {
        Self {
            history,
            ..Self::default()
        }
    }

    pub(super) fn wrote(&self, bytes: u64, time: Duration) {
        self.written.add(bytes, time);
    }

    pub(super) fn read(&self, bytes: u64, time: Duration) {
        self.read.add(bytes, time);
    }

    /// What this process wrote and read.
    pub(super) fn traffic(&self) -> (Traffic, Traffic) {
        (self.written.traffic(), self.read.traffic())
    }

    /// What is to be kept with the store.
    pub(super) fn history(&self) -> History {
        History {
            written: self.history.written.aged().plus(self.written.traffic()),
            read: self.history.read.aged().plus(self.read.traffic()),
        }
    }

    pub(super) fn bandwidth(&self) -> Bandwidth {
        let History { written, read } = self.history();
        Bandwidth {
            write_bps: written.bps(),
            read_bps: read.bps(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_joined_to_what_was() {
        let meter = Meter::default();
        assert_eq!(meter.bandwidth().read_bps, None);
        meter.read(1000, Duration::from_millis(1));
        assert_eq!(meter.bandwidth().read_bps, Some(1_000_000));
        assert_eq!(meter.bandwidth().write_bps, None);
        let later = Meter::new(meter.history());
        later.read(1000, Duration::from_millis(3));
        assert_eq!(later.bandwidth().read_bps, Some(500_000));
        assert_eq!(later.traffic().1.bytes, 1000);
    }

    #[test]
    fn old_figures_do_not_outweigh_new_ones() {
        let fast = Traffic {
            bytes: 1 << 50,
            nanos: 1 << 40,
        };
        let meter = Meter::new(History {
            read: fast,
            ..History::default()
        });
        meter.read(HISTORY_BYTES, Duration::from_secs(1 << 20));
        let before = fast.bps().unwrap();
        assert!(meter.bandwidth().read_bps.unwrap() < before / 1000);
        let absurd = Traffic {
            bytes: u64::MAX,
            nanos: 1,
        };
        assert_eq!(absurd.bps(), Some(u64::MAX));
    }
}
