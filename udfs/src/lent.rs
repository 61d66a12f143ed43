//! Which memory is lent to columns: a set of addresses without a lock.
//!
//! A lock that a thread holds while the process forks stays locked in the child for ever. And a set that
//! may be asked by anybody should hold up nobody.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Places of the set: many times the columns that are alive at a time.
const PLACES: usize = 1024;
/// Places that an address may have.
const TRIES: usize = 16;

/// A set of addresses other than 0. It may forget one where it is nearly full.
#[derive(Debug)]
pub(crate) struct Addresses([AtomicUsize; PLACES]);

impl Addresses {
    /// The empty set.
    pub(crate) const fn new() -> Self {
        Self([const { AtomicUsize::new(0) }; PLACES])
    }

    /// The places where an address may be.
    fn places(&self, address: usize) -> impl Iterator<Item = &AtomicUsize> {
        // Large allocations begin at pages.
        let first = (address >> 4) ^ (address >> 12);
        (0..TRIES).map(move |i| &self.0[(first + i) % PLACES])
    }

    /// Adds an address.
    pub(crate) fn insert(&self, address: usize) {
        let _ = self.places(address).any(|place| {
            place
                .compare_exchange(0, address, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
    }

    /// Takes an address out.
    pub(crate) fn remove(&self, address: usize) {
        let _ = self.places(address).any(|place| {
            place
                .compare_exchange(address, 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
    }

    /// Whether an address is in the set.
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
        let set = Addresses::new();
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
        let set = Addresses::new();
        for address in 1..5000 {
            set.insert(address << 4);
        }
        let known = (1..5000).filter(|a| set.contains(a << 4)).count();
        assert_eq!(known, PLACES);
        assert!(!set.contains(5001 << 4));
    }
}
