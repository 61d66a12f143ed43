//! Records of the workers of a run.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::WorkerId;

/// The workers that run leases, and those of them that are set aside.
#[derive(Debug, Default)]
pub(super) struct WorkerRecords {
    listed: BTreeSet<WorkerId>,
    set_aside: BTreeMap<WorkerId, String>,
}

impl WorkerRecords {
    /// Replaces the list of workers. Records of workers that left are dropped.
    pub(super) fn replace(&mut self, workers: Vec<WorkerId>) {
        self.listed = workers.into_iter().collect();
        let listed = &self.listed;
        self.set_aside.retain(|worker, _| listed.contains(worker));
    }

    /// Sets a worker aside: no lease is submitted to it while there are others.
    pub(super) fn set_aside(&mut self, worker: WorkerId, reason: String) {
        if self.listed.is_empty() || self.listed.contains(&worker) {
            self.set_aside.entry(worker).or_insert(reason);
        }
    }

    /// Returns `true` if a worker is listed.
    pub(super) fn has(&self, worker: &WorkerId) -> bool {
        self.listed.contains(worker)
    }

    /// Returns the number of workers, without those that were set aside.
    pub(super) fn usable(&self) -> usize {
        let usable = |worker: &&WorkerId| !self.set_aside.contains_key(*worker);
        self.listed.iter().filter(usable).count()
    }

    /// Returns `true` if there are workers and each of them is in `unfit`.
    pub(super) fn are_all_in(&self, unfit: &[(WorkerId, String)]) -> bool {
        let is_unfit = |worker: &WorkerId| unfit.iter().any(|(other, _)| other == worker);
        !self.listed.is_empty()
            && self.listed.len() <= unfit.len()
            && self.listed.iter().all(is_unfit)
    }

    /// Returns the workers that must not run a lease for which `unfit` are unfit.
    pub(super) fn avoided(&self, unfit: &[(WorkerId, String)]) -> Vec<WorkerId> {
        let mut avoided: BTreeSet<&WorkerId> = unfit.iter().map(|(worker, _)| worker).collect();
        avoided.extend(self.set_aside.keys());
        let is_left = self.listed.iter().any(|worker| !avoided.contains(worker));
        if is_left || self.listed.is_empty() {
            avoided.into_iter().cloned().collect()
        } else {
            unfit.iter().map(|(worker, _)| worker.clone()).collect()
        }
    }

    /// Returns the workers that were set aside, with the reasons.
    pub(super) fn aside(&self) -> Vec<(WorkerId, String)> {
        let records = self.set_aside.iter();
        records.map(|(id, why)| (id.clone(), why.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> WorkerId {
        WorkerId(name.into())
    }

    fn unfit(names: &[&str]) -> Vec<(WorkerId, String)> {
        names.iter().map(|name| (id(name), "full".into())).collect()
    }

    #[test]
    fn a_worker_set_aside_is_avoided_while_there_are_others() {
        let mut workers = WorkerRecords::default();
        workers.replace(vec![id("a"), id("b")]);
        workers.set_aside(id("a"), "full".into());
        assert_eq!(workers.usable(), 1);
        assert_eq!(workers.avoided(&[]), [id("a")]);
        assert_eq!(workers.avoided(&unfit(&["b"])), [id("b")]);
    }

    #[test]
    fn records_of_workers_that_left_are_dropped() {
        let mut workers = WorkerRecords::default();
        workers.replace(vec![id("a"), id("b")]);
        workers.set_aside(id("a"), "full".into());
        workers.replace(vec![id("b")]);
        assert!(workers.aside().is_empty());
    }

    #[test]
    fn a_lease_is_stranded_if_all_workers_are_unfit() {
        let mut workers = WorkerRecords::default();
        assert!(!workers.are_all_in(&[]));
        workers.replace(vec![id("a"), id("b")]);
        assert!(!workers.are_all_in(&unfit(&["a"])));
        assert!(workers.are_all_in(&unfit(&["a", "c", "b"])));
    }
}
