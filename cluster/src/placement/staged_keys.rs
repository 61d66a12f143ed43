//! The workers that have the data of leases staged, by affinity key.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

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
    young: HashMap<u64, StagedKey>,
    old: HashMap<u64, StagedKey>,
}

/// The workers that have the data of an affinity key staged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedKey {
    /// The workers that ran leases of the key, the latest last.
    pub workers: Vec<String>,
    /// The time when one of them last began to stage the data.
    pub since: Instant,
}

impl StagedKeys {
    fn generations(&self) -> MutexGuard<'_, Generations> {
        let locked = self.generations.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the workers that have the data of a key staged.
    pub fn get(&self, key: u64) -> Option<StagedKey> {
        self.generations().get(key).cloned()
    }

    /// Notes that `worker` runs a lease of a key at `now`. `stages_most` is true if it then has most of the data of the
    /// key. A worker with a small part of the data counts only if no worker in `known` has the data. Returns `true` if
    /// `worker` counts, and did not before: it stages the data.
    pub fn note_run(
        &self,
        key: u64,
        worker: &str,
        stages_most: bool,
        known: &BTreeSet<String>,
        now: Instant,
    ) -> bool {
        let mut generations = self.generations();
        let staged = generations.get(key);
        let workers = staged.map_or(&[][..], |staged| &staged.workers);
        let counts = stages_most || !workers.iter().any(|id| known.contains(id));
        let stages = counts && !workers.iter().any(|id| id == worker);
        if counts {
            let since = staged.filter(|_| !stages);
            let since = since.map_or(now, |staged| staged.since);
            generations.add(key, worker, since);
        }
        stages
    }
}

impl Generations {
    fn get(&self, key: u64) -> Option<&StagedKey> {
        self.young.get(&key).or_else(|| self.old.get(&key))
    }

    /// Notes that a worker has the data of a key.
    fn add(&mut self, key: u64, worker: &str, since: Instant) {
        if self.young.len() >= GENERATION && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        let old = self.old.remove(&key);
        let staged = self.young.entry(key).or_insert_with(|| {
            old.unwrap_or(StagedKey {
                workers: Vec::new(),
                since,
            })
        });
        staged.since = since;
        staged.workers.retain(|of| of != worker);
        staged.workers.push(worker.to_owned());
        let surplus = staged.workers.len().saturating_sub(MAX_WORKERS);
        staged.workers.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_small_part_of_the_data_counts_only_where_nobody_has_more() {
        let staged = StagedKeys::default();
        let known = ["a", "b", "c"].map(str::to_owned).into();
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let runs =
            |worker, stages_most, ms| staged.note_run(1, worker, stages_most, &known, after(ms));
        assert!(runs("gone", false, 1) && runs("a", false, 2));
        assert!(!runs("b", false, 3) && !runs("a", false, 4));
        let of = |workers: &[&str], ms| {
            Some(StagedKey {
                workers: workers.iter().map(|&id| id.to_owned()).collect(),
                since: after(ms),
            })
        };
        assert_eq!(staged.get(1), of(&["gone", "a"], 2));
        assert!(runs("c", true, 5) && !runs("c", true, 6));
        assert_eq!(staged.get(1), of(&["gone", "a", "c"], 5));
    }

    #[test]
    fn the_latest_keys_are_known() {
        let (staged, now) = (StagedKeys::default(), Instant::now());
        let count = 3 * GENERATION as u64;
        for key in 0..count {
            staged.generations().add(key, "a", now);
            staged.generations().add(7, "b", now);
        }
        let workers = |key| {
            staged
                .get(key)
                .map_or_else(Vec::new, |staged| staged.workers)
        };
        assert_eq!(workers(7), ["a", "b"]);
        assert_eq!(workers(count - 1), ["a"]);
        assert_eq!(staged.get(8), None);
        let known = (0..count).filter(|&key| staged.get(key).is_some());
        assert!((GENERATION..=2 * GENERATION).contains(&known.count()));
        for worker in 0..20 {
            staged.generations().add(1, &worker.to_string(), now);
        }
        assert_eq!(workers(1).len(), MAX_WORKERS);
        assert_eq!(workers(1).last().unwrap(), "19");
    }
}
