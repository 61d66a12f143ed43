//! The work of each worker for a job whose operators are measured.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Mutex, PoisonError};

use forebay_runtime::run::JobWork;

use crate::engine::WorkerId;

/// The last known work of each worker.
#[derive(Debug)]
pub(crate) struct WorkByWorker {
    /// A number that no other job has, so that workers do not share the job with other runs.
    pub(crate) job_number: u64,
    latest: Mutex<BTreeMap<WorkerId, JobWork>>,
}

impl WorkByWorker {
    pub(crate) fn new() -> Self {
        Self {
            job_number: RandomState::new().build_hasher().finish(),
            latest: Mutex::default(),
        }
    }

    /// Notes the work that `worker` did so far.
    pub(crate) fn note(&self, worker: WorkerId, work: JobWork) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let known = latest.entry(worker).or_default();
        // Results arrive in any order, and a worker's work only grows.
        if rows(&work) >= rows(known) {
            *known = work;
        }
    }

    /// Adds the work of all workers to `work`.
    pub(crate) fn add_to(&self, work: &mut JobWork) {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.values().for_each(|of_worker| work.add(of_worker));
    }
}

/// Returns the number of rows that all operators have put out.
fn rows(work: &JobWork) -> u64 {
    let rows = work.nodes.iter().map(|node| node.rows);
    rows.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use forebay_runtime::fragment::NodeTotals;

    use super::*;

    fn work(rows: u64) -> JobWork {
        let node = NodeTotals {
            rows,
            ..NodeTotals::default()
        };
        JobWork {
            nodes: vec![node],
            read_bytes: rows,
            ..JobWork::default()
        }
    }

    #[test]
    fn the_latest_work_of_each_worker_counts() {
        let of_workers = WorkByWorker::new();
        for (worker, rows) in [("a", 3), ("b", 5), ("a", 7), ("a", 4)] {
            of_workers.note(WorkerId(worker.into()), work(rows));
        }
        let mut all = work(0);
        of_workers.add_to(&mut all);
        assert_eq!((all.nodes[0].rows, all.read_bytes), (12, 12));
    }

    #[test]
    fn work_of_another_plan_is_not_added() {
        let of_workers = WorkByWorker::new();
        of_workers.note(WorkerId("a".into()), JobWork::default());
        let mut all = work(2);
        of_workers.add_to(&mut all);
        assert_eq!(all, work(2));
    }
}
