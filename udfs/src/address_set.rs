//! A lock-free set of memory addresses, for the start addresses of memory that columns use.
//!
//! The set has no lock, because a lock that a thread holds while the process forks stays locked in
//! the child process forever, and because a query from any thread should never wait.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of slots of an [`AddressSet`]: many times the number of lent columns that exist at the
/// same time.
const PLACES: usize = 1024;
/// Number of slots in which one address may be stored. If all of these slots hold other addresses,
/// the address is not added.
const TRIES: usize = 16;

/// A set of non-zero memory addresses. A nearly full set may fail to add an address.
#[derive(Debug)]
pub(crate) struct AddressSet([AtomicUsize; PLACES]);

impl AddressSet {
    /// Creates an empty set.
    pub(crate) const fn new() -> Self {
        Self([const { AtomicUsize::new(0) }; PLACES])
    }

    /// Returns the slots in which an address may be stored.
    fn places(&self, address: usize) -> impl Iterator<Item = &AtomicUsize> {
        // Large allocations start at page boundaries, so the lowest bits of their addresses hardly
        // differ.
        let first = (address >> 4) ^ (address >> 12);
        (0..TRIES).map(move |i| &self.0[(first + i) % PLACES])
    }

    /// Adds an address, unless all slots for this address hold other addresses.
    pub(crate) fn insert(&self, address: usize) {
        let _ = self.places(address).any(|place| {
            place
                .compare_exchange(0, address, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
    }

    /// Removes an address.
    pub(crate) fn remove(&self, address: usize) {
        let _ = self.places(address).any(|place| {
            place
                .compare_exchange(address, 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
    }

    /// True if `address` was added and has not been removed since.
    pub(crate) fn contains(&self, address: usize) -> bool {
        address != 0
            && self
                .places(address)
                .any(|place| place.load(Ordering::Acquire) == address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inserted_is_there_until_it_is_removed() {
        let set = AddressSet::new();
        for address in (1..200).map(|i| i << 12) {
            assert!(!set.contains(address));
            set.insert(address);
            assert!(set.contains(address));
        }
        for address in (1..200).map(|i| i << 12) {
            set.remove(address);
            assert!(!set.contains(address));
        }
        set.insert(0);
        assert!(!set.contains(0));
    }

    #[test]
    fn a_full_set_forgets_and_invents_nothing() {
        let set = AddressSet::new();
        for address in 1..5000 {
            set.insert(address << 4);
        }
        let known = (1..5000).filter(|a| set.contains(a << 4)).count();
        assert_eq!(known, PLACES);
        assert!(!set.contains(5001 << 4));
    }
}
