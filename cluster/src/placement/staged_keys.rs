//! The workers that have the data of leases staged, by affinity key.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of keys in a generation. The latest keys, and at most twice as many, are known.
const GENERATION: usize = 4096;
/// Number of workers of one key.
const MAX_WORKERS: usize = 8;

/// The workers that ran leases of an affinity key, and so have its data staged. Old keys are
/// forgotten.
#[derive(Debug, Default)]
pub struct StagedKeys {
    generations: Mutex<Generations>,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<u64, Vec<String>>,
    old: HashMap<u64, Vec<String>>,
}

impl StagedKeys {
    fn generations(&self) -> MutexGuard<'_, Generations> {
        let locked = self.generations.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the workers that ran leases of a key, the latest last.
    pub fn workers(&self, key: u64) -> Vec<String> {
        let generations = self.generations();
        let known = { generations.young.get(&key) }.or_else(|| generations.old.get(&key));
        known.cloned().unwrap_or_default()
    }

    /// Notes that `worker` runs a lease of a key. `stages_most` is true if it then has most of the data of the
    /// key. A worker with a small part of the data counts only if no worker in `known` has the data. Returns `true` if
    /// `worker` counts, and did not before: it stages the data.
    pub fn note_run(
        &self,
        key: u64,
        worker: &str,
        stages_most: bool,
        known: &BTreeSet<String>,
    ) -> bool {
        let staged = self.workers(key);
        let counts = stages_most || !staged.iter().any(|id| known.contains(id));
        if counts {
            self.add(key, worker);
        }
        counts && !staged.iter().any(|id| id == worker)
    }

    /// Notes that a worker has the data of a key.
    fn add(&self, key: u64, worker: &str) {
        let mut generations = self.generations();
        if generations.young.len() >= GENERATION && !generations.young.contains_key(&key) {
            generations.old = std::mem::take(&mut generations.young);
        }
        let old = generations.old.remove(&key);
        let workers = generations.young.entry(key).or_default();
        workers.extend(old.into_iter().flatten());
        workers.retain(|of| of != worker);
        workers.push(worker.to_owned());
        let surplus = workers.len().saturating_sub(MAX_WORKERS);
        workers.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_part_of_the_data_counts_only_where_nobody_has_more() {
        let staged = StagedKeys::default();
        let known = ["a", "b", "c"].map(str::to_owned).into();
        let runs = |worker, stages_most| staged.note_run(1, worker, stages_most, &known);
        assert!(runs("gone", false) && runs("a", false));
        assert!(!runs("b", false) && !runs("a", false));
        assert_eq!(staged.workers(1), ["gone", "a"]);
        assert!(runs("c", true) && !runs("c", true));
        assert_eq!(staged.workers(1), ["gone", "a", "c"]);
    }

    #[test]
    fn the_latest_keys_are_known() {
        let staged = StagedKeys::default();
        let count = 3 * GENERATION as u64;
        for key in 0..count {
            staged.add(key, "a");
            staged.add(7, "b");
        }
        assert_eq!(staged.workers(7), ["a", "b"]);
        assert_eq!(staged.workers(count - 1), ["a"]);
        assert_eq!(staged.workers(8), [""; 0]);
        let known = (0..count).filter(|&key| !staged.workers(key).is_empty());
        assert!((GENERATION..=2 * GENERATION).contains(&known.count()));
        for worker in 0..20 {
            staged.add(1, &worker.to_string());
        }
        assert_eq!(staged.workers(1).len(), MAX_WORKERS);
        assert_eq!(staged.workers(1).last().unwrap(), "19");
    }
}
