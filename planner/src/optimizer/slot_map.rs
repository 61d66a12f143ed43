//! A map from slots to values in one allocation. The map is compact, since each class of a plan's
//! e-graph has such a map, and a plan may have thousands of slots.

use super::slots::{Slot, SlotSet};

/// Pairs of a slot and its value, in ascending order of slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotMap<V>(Vec<(Slot, V)>);

impl<V> Default for SlotMap<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V> SlotMap<V> {
    fn find(&self, slot: Slot) -> Result<usize, usize> {
        self.0.binary_search_by_key(&slot, |&(known, _)| known)
    }

    /// The number of slots.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if the map has no slot.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a slot; `None` if the slot is not in the map.
    pub fn get(&self, slot: Slot) -> Option<&V> {
        self.find(slot).ok().map(|at| &self.0[at].1)
    }

    /// Sets the value of a slot.
    pub fn insert(&mut self, slot: Slot, value: V) {
        match self.find(slot) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (slot, value)),
        }
    }

    /// Removes a slot, and returns its value; `None` if the slot is not in the map.
    pub fn remove(&mut self, slot: Slot) -> Option<V> {
        self.find(slot).ok().map(|at| self.0.remove(at).1)
    }

    /// Removes the slots that are not in `slots`.
    pub fn keep(&mut self, slots: &SlotSet) {
        self.0.retain(|&(slot, _)| slots.contains(slot));
    }

    /// The slots of the map, in ascending order.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.0.iter().map(|&(slot, _)| slot)
    }

    /// The values of the map, in ascending order of slots.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// Mutable references to the values, in ascending order of slots.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// The pairs of a slot and its value, in ascending order of slots.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &V)> {
        self.0.iter().map(|(slot, value)| (*slot, value))
    }
}

impl<V> Extend<(Slot, V)> for SlotMap<V> {
    /// Sets the value of each slot in `values`. If a slot occurs several times, its last value is
    /// stored.
    fn extend<I: IntoIterator<Item = (Slot, V)>>(&mut self, values: I) {
        /// Number of values that are inserted one by one. All further values are appended, and the
        /// map is sorted once.
        const FEW: usize = 4;
        let mut values = values.into_iter();
        for (slot, value) in values.by_ref().take(FEW) {
            self.insert(slot, value);
        }
        let sorted = self.0.len();
        self.0.extend(values);
        if self.0.len() == sorted {
            return;
        }
        // The sort is stable, so several values of one slot stay in their order, and the last can
        // be stored.
        self.0.sort_by_key(|&(slot, _)| slot);
        let all = std::mem::take(&mut self.0);
        self.0.reserve(all.len());
        for (slot, value) in all {
            match self.0.last_mut() {
                Some(last) if last.0 == slot => last.1 = value,
                _ => self.0.push((slot, value)),
            }
        }
    }
}

impl<V> FromIterator<(Slot, V)> for SlotMap<V> {
    fn from_iter<I: IntoIterator<Item = (Slot, V)>>(values: I) -> Self {
        let mut map = Self::default();
        map.extend(values);
        map
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_slot_map_is_a_map(
            values in vec((0_u32..100, 0_u8..), 0..20),
            more in vec((0_u32..100, 0_u8..), 0..20),
            gone in vec(0_u32..100, 0..20),
        ) {
            let mut expected: BTreeMap<Slot, u8> = BTreeMap::new();
            expected.extend(values.iter().map(|&(slot, value)| (Slot(slot), value)));
            let mut map: SlotMap<u8> = values.iter().map(|&(s, v)| (Slot(s), v)).collect();
            map.extend(more.iter().map(|&(slot, value)| (Slot(slot), value)));
            expected.extend(more.iter().map(|&(slot, value)| (Slot(slot), value)));
            for &slot in &gone {
                prop_assert_eq!(map.remove(Slot(slot)), expected.remove(&Slot(slot)));
                prop_assert_eq!(map.get(Slot(slot)), None);
            }
            let pairs = |map: &SlotMap<u8>| map.iter().map(|(s, &v)| (s, v)).collect::<Vec<_>>();
            prop_assert_eq!(pairs(&map), expected.clone().into_iter().collect::<Vec<_>>());
            let kept: SlotSet = (0..50).map(Slot).collect();
            map.keep(&kept);
            expected.retain(|&slot, _| kept.contains(slot));
            prop_assert_eq!(pairs(&map), expected.into_iter().collect::<Vec<_>>());
        }
    }
}
