//! A lock-free set of the addresses of memory lent to columns.
//!
//! A lock that a thread holds while the process forks stays locked in the child forever. A set that
//! any thread may query should also block no one.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of slots of an [`AddressSet`]: many times the number of lent columns alive at a time.
const PLACES: usize = 1024;
/// Number of slots that one address may occupy. If all of them are taken, the address is not added.
const TRIES: usize = 16;

/// A set of non-zero addresses. If nearly full, it may fail to add an address.
#[derive(Debug)]
pub(crate) struct AddressSet([AtomicUsize; PLACES]);

impl AddressSet {
    /// Creates an empty set.
    pub(crate) const fn new() -> Self {
        Self([const { AtomicUsize::new(0) }; PLACES])
    }

    /// Returns the slots in which an address may be stored.
    fn places(&self, address: usize) -> impl Iterator<Item = &AtomicUsize> {
        // Large allocations start at page boundaries, so the lowest bits say little.
        let first = (address >> 4) ^ (address >> 12);
        (0..TRIES).map(move |i| &self.0[(first + i) % PLACES])
    }

    /// Adds an address, unless all of its slots are taken.
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

    /// True if the address was added and not removed since.
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
