//! Account of the bytes that a window holds or has reserved.

use super::settings::WindowSettings;

/// Bookkeeping of one segment in memory, so that empty results are not free.
pub(super) const SEGMENT_OVERHEAD: u64 = 256;

/// Size of results that a window holds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ResultBytes {
    /// Size of the results.
    pub(super) held: u64,
    /// Bytes by which the results exceed their reservations.
    pub(super) excess: u64,
}

impl ResultBytes {
    /// Returns the size of a result of `bytes` bytes for which `reserved` were reserved.
    pub(super) fn new(bytes: u64, reserved: u64) -> Self {
        let held = bytes.saturating_add(SEGMENT_OVERHEAD);
        Self {
            held,
            excess: held.saturating_sub(reserved),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.held = self.held.saturating_add(other.held);
        self.excess = self.excess.saturating_add(other.excess);
    }

    fn subtract(&mut self, other: Self) {
        self.held = self.held.saturating_sub(other.held);
        self.excess = self.excess.saturating_sub(other.excess);
    }
}

/// Account of the bytes of a window.
#[derive(Debug, Clone)]
pub(super) struct ByteAccount {
    limit: u64,
    /// Reservations of leases, one for each lease.
    reserved: u64,
    /// Reservations of second attempts.
    second: u64,
    results: ResultBytes,
    /// Reservation of the last lease that was submitted while the window was empty.
    alone: u64,
}

impl ByteAccount {
    pub(super) fn new(settings: &WindowSettings) -> Self {
        Self {
            limit: settings.limit(),
            reserved: 0,
            second: 0,
            results: ResultBytes::default(),
            alone: 0,
        }
    }

    /// Returns `true` if a lease of `bytes` bytes behind the head may be submitted.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.used().saturating_add(bytes) <= self.limit
    }

    /// Reserves the bytes of a lease. `is_alone` if the window holds nothing else.
    pub(super) fn reserve(&mut self, bytes: u64, is_alone: bool) {
        self.reserved += bytes;
        if is_alone {
            self.alone = bytes;
        }
    }

    pub(super) fn release(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    pub(super) fn reserve_second(&mut self, bytes: u64) {
        self.second += bytes;
    }

    pub(super) fn release_second(&mut self, bytes: u64) {
        self.second = self.second.saturating_sub(bytes);
    }

    pub(super) fn hold(&mut self, results: ResultBytes) {
        self.results.add(results);
    }

    pub(super) fn free(&mut self, results: ResultBytes) {
        self.results.subtract(results);
    }

    /// Returns the bytes that are held or reserved.
    pub(super) fn used(&self) -> u64 {
        self.reserved
            .saturating_add(self.second)
            .saturating_add(self.results.held)
    }

    /// Returns the bound of [`used`](Self::used) at this moment.
    pub(super) fn bound(&self) -> u64 {
        let admitted = self.limit.max(self.alone);
        admitted
            .saturating_add(self.second)
            .saturating_add(self.results.excess)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> ByteAccount {
        ByteAccount::new(&WindowSettings {
            max_bytes: 4000,
            ..WindowSettings::default()
        })
    }

    #[test]
    fn a_lease_behind_the_head_leaves_room_for_the_head() {
        let mut account = account();
        account.reserve(2000, true);
        assert!(account.has_room(1000));
        assert!(!account.has_room(1001));
    }

    #[test]
    fn results_over_their_estimate_raise_the_bound_until_they_are_consumed() {
        let mut account = account();
        account.reserve(1000, true);
        account.release(1000);
        let results = ResultBytes::new(9000, 1000);
        account.hold(results);
        assert_eq!(account.used(), 9000 + SEGMENT_OVERHEAD);
        assert_eq!(account.bound(), 3000 + 8000 + SEGMENT_OVERHEAD);
        account.free(results);
        assert_eq!((account.used(), account.bound()), (0, 3000));
    }

    #[test]
    fn a_second_attempt_fits_in_the_room_of_the_head() {
        let mut account = account();
        account.reserve(1000, true);
        account.reserve(2000, false);
        account.reserve_second(1000);
        assert_eq!((account.used(), account.bound()), (4000, 4000));
        account.release_second(1000);
        assert_eq!((account.used(), account.bound()), (3000, 3000));
    }
}
