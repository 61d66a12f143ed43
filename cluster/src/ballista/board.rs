//! State that submissions and placement share: workers, and the progress of each lease.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use super::wire::WorkerAddress;

/// Locks `mutex`. What a panic left there is still consistent, as no lock here spans two changes
/// that belong together.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The workers of a cluster by their ids.
pub(crate) type WorkerMap = BTreeMap<String, WorkerAddress>;

/// The workers and the running leases of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Board {
    workers: watch::Sender<WorkerMap>,
    /// Number of running leases of each client that has any.
    running: Mutex<BTreeMap<String, usize>>,
}

impl Board {
    /// Returns the registered workers, and how they change.
    pub(crate) fn workers(&self) -> watch::Receiver<WorkerMap> {
        self.workers.subscribe()
    }

    /// Adds a worker.
    pub(crate) fn add_worker(&self, worker: &WorkerAddress) {
        self.workers.send_if_modified(|workers| {
            workers.insert(worker.id.clone(), worker.clone()).as_ref() != Some(worker)
        });
    }

    /// Removes a worker.
    pub(crate) fn remove_worker(&self, id: &str) {
        self.workers
            .send_if_modified(|workers| workers.remove(id).is_some());
    }

    /// Returns the number of running leases of each client that has any.
    pub(crate) fn running(&self) -> BTreeMap<String, usize> {
        lock(&self.running).clone()
    }

    /// Creates the record of a lease that was submitted.
    pub(crate) fn submit(self: &Arc<Self>, client: String) -> Arc<LeaseRecord> {
        Arc::new(LeaseRecord {
            board: Arc::clone(self),
            client,
            phase: Mutex::new(LeasePhase::Waiting),
            lost: Notify::new(),
        })
    }
}

/// Where a lease is on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeasePhase {
    /// No worker has it.
    Waiting,
    /// The worker has it.
    Assigned(String),
    /// The worker had it and will not return a result.
    Lost(String),
    /// The client has the answer, or does not want it any more.
    Ended,
}

/// Progress of one lease.
#[derive(Debug)]
pub(crate) struct LeaseRecord {
    board: Arc<Board>,
    client: String,
    phase: Mutex<LeasePhase>,
    lost: Notify,
}

impl LeaseRecord {
    /// Returns the phase of the lease.
    pub(crate) fn phase(&self) -> LeasePhase {
        lock(&self.phase).clone()
    }

    /// Gives the waiting lease to `worker`. Returns `false` if it does not wait any more.
    pub(crate) fn assign(&self, worker: &str) -> bool {
        let mut phase = lock(&self.phase);
        if *phase != LeasePhase::Waiting {
            return false;
        }
        *phase = LeasePhase::Assigned(worker.to_owned());
        *lock(&self.board.running)
            .entry(self.client.clone())
            .or_default() += 1;
        true
    }

    /// Takes the lease from its worker, which will not return a result.
    pub(crate) fn lose(&self) {
        let mut phase = lock(&self.phase);
        if let LeasePhase::Assigned(worker) = &*phase {
            *phase = LeasePhase::Lost(worker.clone());
            self.count_end();
            self.lost.notify_one();
        }
    }

    /// Ends the lease. Placement does not touch it from here on.
    pub(crate) fn end(&self) {
        let mut phase = lock(&self.phase);
        if matches!(&*phase, LeasePhase::Assigned(_)) {
            self.count_end();
        }
        *phase = LeasePhase::Ended;
    }

    /// Waits until the lease is lost, and returns its worker.
    pub(crate) async fn lost(&self) -> String {
        loop {
            let notified = self.lost.notified();
            if let LeasePhase::Lost(worker) = self.phase() {
                return worker;
            }
            notified.await;
        }
    }

    fn count_end(&self) {
        let mut running = lock(&self.board.running);
        if let Some(count) = running.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_leases_are_counted() {
        let board = Arc::new(Board::default());
        let [first, second] = [(), ()].map(|()| board.submit("client".to_owned()));
        assert!(board.running().is_empty());
        assert!(first.assign("a") && second.assign("b"));
        assert!(!first.assign("b"), "a lease is assigned once");
        assert_eq!(board.running().get("client"), Some(&2));
        first.lose();
        first.end();
        assert_eq!(board.running().get("client"), Some(&1));
        second.end();
        second.end();
        assert!(board.running().is_empty());
        assert!(!second.assign("a"), "an ended lease is not assigned");
    }

    #[test]
    fn losing_a_lease_wakes_its_submission() {
        let board = Arc::new(Board::default());
        let lease = board.submit("client".to_owned());
        lease.lose();
        assert_eq!(lease.phase(), LeasePhase::Waiting, "no worker had it");
        lease.assign("a");
        lease.lose();
        assert_eq!(futures::executor::block_on(lease.lost()), "a");
    }
}
