//! Helpers of the tests of the cache: a manual clock, and hooks by which a store throttles or fails.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, PutPayload, Result};

use super::clock::Clock;
use super::key::{FileKey, RowAddress};
use crate::objects::hooked::{Hook, Hooked};

/// Returns the address of a row in file number `file`.
pub(crate) fn address(file: u8, row: u64) -> RowAddress {
    RowAddress {
        file: FileKey::from_bytes([file; 16]),
        row,
    }
}

/// A clock that advances only when [`advance`](Self::advance) is called.
#[derive(Debug, Default)]
pub(crate) struct ManualClock {
    nanos: AtomicU64,
}

impl ManualClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.nanos.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    fn unix_ms(&self) -> u64 {
        1_700_000_000_000 + self.elapsed().as_millis() as u64
    }
}

/// Number of bytes that the token bucket of a [`Throttle`] holds.
const BURST: u64 = 64;

/// A hook that limits bytes per second by a token bucket. Instead of waiting, the hook advances
/// `clock`.
#[derive(Debug)]
struct Throttle {
    clock: Arc<ManualClock>,
    bytes_per_second: u64,
    /// Number of bytes in the bucket, and the time of `clock` when this number was computed.
    bucket: Mutex<(u64, Duration)>,
}

impl Throttle {
    fn pass(&self, bytes: u64) {
        let mut bucket = self.bucket.lock().unwrap();
        let (tokens, counted) = *bucket;
        let since = self.clock.elapsed() - counted;
        let refill = (since.as_nanos() * u128::from(self.bytes_per_second) / 1_000_000_000) as u64;
        let tokens = (tokens + refill).min(BURST);
        let lacking = bytes.saturating_sub(tokens);
        self.clock.advance(Duration::from_nanos(
            lacking * 1_000_000_000 / self.bytes_per_second,
        ));
        *bucket = (tokens.saturating_sub(bytes), self.clock.elapsed());
    }
}

/// Wraps `inner` in a store that transfers at most `bytes_per_second`. Returns the wrapping store,
/// and the clock that its transfers advance.
pub(crate) fn throttled(
    inner: Arc<dyn ObjectStore>,
    bytes_per_second: u64,
) -> (Arc<dyn ObjectStore>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let hook = Arc::new(Throttle {
        clock: Arc::clone(&clock),
        bytes_per_second,
        bucket: Mutex::new((BURST, Duration::ZERO)),
    });
    (Arc::new(Hooked { inner, hook }), clock)
}

impl Hook for Throttle {
    fn before_put(&self, _: &Path, payload: &PutPayload) -> Result<()> {
        self.pass(payload.content_length() as u64);
        Ok(())
    }

    fn after_ranges(&self, _: &Path, parts: &[Bytes]) -> Result<()> {
        self.pass(parts.iter().map(|part| part.len() as u64).sum());
        Ok(())
    }
}

/// A simulated disk with a limited number of free bytes.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) free: AtomicU64,
}

impl Hook for Disk {
    fn before_put(&self, location: &Path, payload: &PutPayload) -> Result<()> {
        let bytes = payload.content_length() as u64;
        let taken = self
            .free
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |free| {
                free.checked_sub(bytes)
            });
        taken.map(drop).map_err(|_| object_store::Error::Generic {
            store: "test",
            source: format!("no space left for {location}").into(),
        })
    }
}
