//! Slots: the columns of a plan under names that no operator changes.
//!
//! A slot is created by a scan, or by the first operator that writes the slot. Later operators read
//! the slot, or replace its values under the same name. So two operators with disjoint slots
//! commute, and a rewrite never renumbers column references.

use std::fmt;

/// A column of a plan: an index into the arena's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// A set of slots.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SlotSet {
    /// Bit `i % 64` of word `i / 64` is 1 if slot `i` is in the set. The last word is not zero, so
    /// equal sets have equal words.
    words: Vec<u64>,
}

impl SlotSet {
    /// Adds a slot.
    pub fn insert(&mut self, Slot(slot): Slot) {
        let word = (slot / 64) as usize;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (slot % 64);
    }

    /// Adds the slots of `other`.
    pub fn extend(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// True if the slot is in the set.
    pub fn contains(&self, Slot(slot): Slot) -> bool {
        let word = self.words.get((slot / 64) as usize);
        word.is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// True if no slot is in both sets.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & b == 0)
    }

    /// True if every slot of this set is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words.len() <= other.words.len()
            && self
                .words
                .iter()
                .zip(&other.words)
                .all(|(a, b)| a & !b == 0)
    }

    /// True if the set has no slot.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The slots that are in this set, in `other`, or in both.
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) = if self.words.len() >= other.words.len() {
            (self, other)
        } else {
            (other, self)
        };
        let mut words = long.words.clone();
        for (word, more) in words.iter_mut().zip(&short.words) {
            *word |= more;
        }
        Self { words }
    }

    /// The slots of this set that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        let mut words = self.words.clone();
        for (word, less) in words.iter_mut().zip(&other.words) {
            *word &= !less;
        }
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }

    /// The slots that are both in this set and in `other`.
    pub fn intersection(&self, other: &Self) -> Self {
        self.difference(&self.difference(other))
    }

    /// The slots of the set, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| Slot(index as u32 * 64 + bit))
        })
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        let mut set = Self::default();
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|s| s.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;

    fn set(slots: &BTreeSet<u32>) -> SlotSet {
        slots.iter().map(|&s| Slot(s)).collect()
    }

    proptest! {
        #[test]
        fn a_slot_set_is_a_set(a in btree_set(0_u32..200, 0..12), b in btree_set(0_u32..200, 0..12)) {
            let (x, y) = (set(&a), set(&b));
            prop_assert_eq!(x.union(&y), set(&(&a | &b)));
            let mut both = x.clone();
            both.extend(&y);
            prop_assert_eq!(both, set(&(&a | &b)));
            prop_assert_eq!(x.difference(&y), set(&(&a - &b)));
            prop_assert_eq!(x.intersection(&y), set(&(&a & &b)));
            prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.is_empty(), a.is_empty());
            prop_assert_eq!(x.iter().map(|s| s.0).collect::<BTreeSet<_>>(), a);
        }
    }
}
