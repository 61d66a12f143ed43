//! Bandwidth of a cache store, measured while the store is used.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum number of bytes that earlier measurements count as. The limit lets new measurements soon
/// outweigh the earlier ones when a store has become slower.
const HISTORY_BYTES: u64 = 4 << 30;

/// Maximum number of bytes that are read in order to measure the bandwidth of a store again.
pub(super) const MEASURED_BYTES: u64 = 1 << 20;

/// Minimum number of bytes of a new measurement that replaces the history. A smaller measurement is
/// added to the history.
const ENOUGH: u64 = 64 << 10;

/// Lower bound of a measured bandwidth, in bytes per second. A lower value is due to a short
/// disturbance, or to too few measured bytes.
const FLOOR: u64 = 256 << 10;

/// Time after which a measurement is discarded, in milliseconds.
const VALID_MS: u64 = 24 * 60 * 60 * 1000;

/// Bandwidth of a single request to a store, in bytes per second. Several concurrent requests may
/// together be faster. For a directory, reads that the system's page cache serves are measured,
/// too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bandwidth {
    /// Bandwidth of writing, in bytes per second; `None` until something was written.
    pub write_bps: Option<u64>,
    /// Bandwidth of reading, in bytes per second; `None` until something was read.
    pub read_bps: Option<u64>,
}

/// Bytes that were transferred in one direction, and the time that the transfers took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Number of bytes transferred.
    pub bytes: u64,
    /// Time that the transfers took in nanoseconds, summed over requests.
    pub nanos: u64,
}

impl Traffic {
    fn bps(self) -> Option<u64> {
        let bps = u128::from(self.bytes) * 1_000_000_000 / u128::from(self.nanos.max(1));
        let bps = u64::try_from(bps).unwrap_or(u64::MAX).max(FLOOR);
        (self.bytes > 0 && self.nanos > 0).then_some(bps)
    }

    fn plus(self, more: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(more.bytes),
            nanos: self.nanos.saturating_add(more.nanos),
        }
    }

    /// Combines `self`, the measurement of this process, with the earlier measurement `before`.
    /// Returns `self` alone if `self` has at least [`ENOUGH`] bytes or `before` has no bytes;
    /// otherwise the sum of both. The second value is the time at which the returned measurement
    /// counts as made, in milliseconds since 1970. For a sum, this time is `before_ms`, because a
    /// few new bytes do not renew an old measurement.
    fn after(self, before: Self, before_ms: u64, now_ms: u64) -> (Self, u64) {
        match (before.bytes, self.bytes) {
            (0, 0) => (self, 0),
            (0, _) | (_, ENOUGH..) => (self, now_ms),
            _ => (before.aged().plus(self), before_ms),
        }
    }

    /// Returns a measurement of the same rate that has at most about [`HISTORY_BYTES`] bytes.
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

/// The bandwidth measurements that are saved in a store, as `bandwidth.json`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct History {
    pub(super) written: Traffic,
    pub(super) read: Traffic,
    /// Time when writing was measured, in milliseconds since 1970; 0 when unknown.
    #[serde(default)]
    pub(super) written_ms: u64,
    /// Time when reading was measured, in milliseconds since 1970; 0 when unknown.
    #[serde(default)]
    pub(super) read_ms: u64,
}

impl History {
    /// Returns the history without the measurements that are older than [`VALID_MS`].
    pub(super) fn unless_old(self, now_ms: u64) -> Self {
        let unless_old = |measured: Traffic, at_ms: u64| {
            if now_ms.saturating_sub(at_ms) > VALID_MS {
                Traffic::default()
            } else {
                measured
            }
        };
        Self {
            written: unless_old(self.written, self.written_ms),
            read: unless_old(self.read, self.read_ms),
            ..self
        }
    }
}

/// Measures the traffic of this process with a store, and holds the earlier measurements.
#[derive(Debug, Default)]
pub(super) struct Meter {
    history: History,
    written: ByteCounter,
    read: ByteCounter,
    /// True when the store was read in order to measure its read bandwidth again. Earlier
    /// measurements of reading are then ignored.
    was_read_again: AtomicBool,
}

#[derive(Debug, Default)]
struct ByteCounter {
    bytes: AtomicU64,
    nanos: AtomicU64,
}

impl ByteCounter {
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

    /// Records that the store was read in order to measure its read bandwidth again. Earlier
    /// measurements of reading are ignored from now on.
    pub(super) fn read_again(&self) {
        self.was_read_again.store(true, Ordering::Relaxed);
    }

    /// Returns the traffic of this process as `(written, read)`.
    pub(super) fn traffic(&self) -> (Traffic, Traffic) {
        (self.written.traffic(), self.read.traffic())
    }

    /// Returns the measurements to save in the store: those of this process, combined with earlier
    /// ones.
    pub(super) fn history(&self, now_ms: u64) -> History {
        let read_before = if self.was_read_again.load(Ordering::Relaxed) {
            Traffic::default()
        } else {
            self.history.read
        };
        let before = self.history;
        let written = self.written.traffic();
        let (written, written_ms) = written.after(before.written, before.written_ms, now_ms);
        let (read, read_ms) = self
            .read
            .traffic()
            .after(read_before, before.read_ms, now_ms);
        History {
            written,
            read,
            written_ms,
            read_ms,
        }
    }

    pub(super) fn bandwidth(&self) -> Bandwidth {
        let History { written, read, .. } = self.history(0);
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
        let later = Meter::new(meter.history(0));
        later.read(1000, Duration::from_millis(3));
        assert_eq!(later.bandwidth().read_bps, Some(500_000));
        assert_eq!(later.traffic().1.bytes, 1000);
    }

    #[test]
    fn a_slow_moment_does_not_count_for_ever() {
        let slow = Traffic {
            bytes: 10 * ENOUGH,
            nanos: 1 << 50,
        };
        let history = History {
            read: slow,
            written: slow,
            written_ms: 5,
            read_ms: 5,
        };
        let meter = Meter::new(history.unless_old(VALID_MS));
        assert_eq!(meter.bandwidth().read_bps, Some(FLOOR));
        meter.read(ENOUGH, Duration::from_millis(1));
        assert_eq!(meter.bandwidth().read_bps, Some(ENOUGH * 1000));
        assert_eq!(meter.bandwidth().write_bps, Some(FLOOR));
        let later = Meter::new(meter.history(7).unless_old(7 + VALID_MS));
        assert_eq!(later.bandwidth().read_bps, Some(ENOUGH * 1000));
        // Reading does not renew the measurement of writing, and a process without traffic renews
        // neither.
        let kept = meter.history(7);
        assert_eq!((kept.written_ms, kept.read_ms), (5, 7));
        assert_eq!(Meter::new(kept).history(9), kept);
        let later = Meter::new(kept.unless_old(6 + VALID_MS));
        assert_eq!(later.bandwidth().write_bps, None);
        assert_eq!(later.bandwidth().read_bps, Some(ENOUGH * 1000));
        let again = Meter::new(history);
        again.read(100, Duration::from_micros(1));
        assert_eq!(again.bandwidth().read_bps, Some(FLOOR));
        again.read_again();
        assert_eq!(again.bandwidth().read_bps, Some(100_000_000));
        let later = Meter::new(meter.history(7).unless_old(8 + VALID_MS));
        assert_eq!(later.bandwidth().read_bps, None);
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
