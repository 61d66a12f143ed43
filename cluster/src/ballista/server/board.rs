//! State that submissions and placement share: workers, and the progress of each lease.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::alarm::Alarm;
use super::watch::WorkerState;
use crate::ballista::lock::lock;
use crate::ballista::wire::WorkerAddress;
use crate::engine::LeaseStaging;
use crate::placement::{Patience, StagedKeys, StagingPace};

/// A registered worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegisteredWorker {
    pub(crate) address: WorkerAddress,
    /// Number of this registration. A worker that was removed and returns has another one.
    pub(crate) registration: u64,
    /// `true` once the scheduler has called the worker, so that leases can be given to it.
    pub(crate) is_watched: bool,
}

/// Knowledge about a registered worker that changes often, and concerns no lease.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkerNote {
    /// The latest report of the worker.
    pub(crate) state: WorkerState,
    /// The reason why no leases are given to it.
    pub(crate) refused: Option<String>,
}

/// The registered workers of a cluster by their ids.
pub(crate) type WorkerMap = BTreeMap<String, RegisteredWorker>;

/// The workers and the running leases of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Board {
    workers: watch::Sender<WorkerMap>,
    registrations: AtomicU64,
    /// Notes about workers by their registrations.
    notes: Mutex<BTreeMap<u64, WorkerNote>>,
    /// Number of running leases of each client that has any.
    running: Mutex<BTreeMap<String, usize>>,
    /// The workers that have the data of leases staged.
    pub(crate) staged: StagedKeys,
    /// The time that staging takes.
    staging_pace: StagingPace,
    /// The time at which leases that wait for a worker are placed again.
    pub(crate) alarm: Alarm,
}

impl Board {
    /// Returns the registered workers, and how they change.
    pub(crate) fn workers(&self) -> watch::Receiver<WorkerMap> {
        self.workers.subscribe()
    }

    /// Adds a worker. It gets leases when it is watched.
    pub(crate) fn add_worker(&self, address: WorkerAddress) {
        self.workers.send_if_modified(|workers| {
            let old = workers.get(&address.id);
            if old.is_some_and(|old| old.address == address) {
                return false;
            }
            if let Some(old) = old {
                lock(&self.notes).remove(&old.registration);
            }
            let registration = self.registrations.fetch_add(1, Ordering::Relaxed);
            let id = address.id.clone();
            workers.insert(
                id,
                RegisteredWorker {
                    address,
                    registration,
                    is_watched: false,
                },
            );
            true
        });
    }

    /// Notes that the scheduler watches a worker. Returns `false` if it does not have that
    /// registration any more.
    pub(crate) fn watch_worker(&self, id: &str, registration: u64) -> bool {
        let mut is_current = false;
        self.workers
            .send_if_modified(|workers| match workers.get_mut(id) {
                Some(worker) if worker.registration == registration => {
                    is_current = true;
                    !std::mem::replace(&mut worker.is_watched, true)
                }
                _ => false,
            });
        is_current
    }

    /// Removes a worker.
    pub(crate) fn remove_worker(&self, id: &str) {
        self.workers.send_if_modified(|workers| {
            let removed = workers.remove(id);
            if let Some(worker) = &removed {
                lock(&self.notes).remove(&worker.registration);
            }
            removed.is_some()
        });
    }

    /// Changes the note about the worker with a registration.
    pub(crate) fn annotate(&self, registration: u64, change: impl FnOnce(&mut WorkerNote)) {
        let workers = self.workers.borrow();
        // A worker that was removed has no note any more.
        if workers
            .values()
            .any(|worker| worker.registration == registration)
        {
            change(lock(&self.notes).entry(registration).or_default());
        }
    }

    /// Returns the note about the worker with a registration.
    pub(crate) fn note(&self, registration: u64) -> WorkerNote {
        let notes = lock(&self.notes);
        notes.get(&registration).cloned().unwrap_or_default()
    }

    /// Returns the workers that can run leases.
    pub(crate) fn watched_workers(&self) -> Vec<WorkerAddress> {
        let workers = self.workers.borrow();
        let watched = workers.values().filter(|worker| worker.is_watched);
        watched.map(|worker| worker.address.clone()).collect()
    }

    /// Returns the number of running leases of each client that has any.
    pub(crate) fn running(&self) -> BTreeMap<String, usize> {
        lock(&self.running).clone()
    }

    /// Creates the record of a lease that was submitted.
    /// It waits for a worker that has its data staged for at most as long as staging takes.
    pub(crate) fn submit(
        self: &Arc<Self>,
        client: String,
        staging: LeaseStaging,
    ) -> Arc<LeaseRecord> {
        Arc::new(LeaseRecord {
            board: Arc::clone(self),
            client,
            patience: Patience::new(staging),
            stages_since: OnceLock::new(),
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
    patience: Patience,
    /// The time when its worker began to stage data for it; unset if the worker had the data.
    stages_since: OnceLock<Instant>,
    phase: Mutex<LeasePhase>,
    lost: Notify,
}

impl LeaseRecord {
    /// Returns for how long the lease waits for a worker that has its data.
    pub(crate) const fn patience(&self) -> &Patience {
        &self.patience
    }

    /// Notes that the lease is held back although another worker has a free slot. `staged_at` is the time when a worker
    /// last began to stage its data.
    pub(crate) fn hold(&self, now: Instant, staged_at: Option<Instant>) {
        let slowdown = self.board.staging_pace.slowdown();
        let end = self.patience.hold(now, staged_at, slowdown);
        self.board.alarm.set(end);
    }

    /// Notes that the worker of the lease begins to stage its data.
    pub(crate) fn stage(&self, now: Instant) {
        self.stages_since.get_or_init(|| now);
    }

    /// Notes that the lease has a result.
    pub(crate) fn note_result(&self, now: Instant) {
        if let Some(since) = self.stages_since.get() {
            let estimated = self.patience.staging();
            let took = now.saturating_duration_since(*since);
            self.board.staging_pace.measure(estimated, took);
        }
    }

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
    use std::time::Duration;

    use super::*;
    use crate::placement::PatienceState;

    #[test]
    fn running_leases_are_counted() {
        let board = Arc::new(Board::default());
        let [first, second] =
            [(), ()].map(|()| board.submit("client".to_owned(), LeaseStaging::default()));
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
    fn a_worker_that_returns_is_watched_again() {
        let board = Board::default();
        let address = |port| WorkerAddress {
            id: "a".to_owned(),
            host: "host".to_owned(),
            port,
        };
        let registration = || board.workers().borrow()["a"].registration;
        board.add_worker(address(1));
        let first = registration();
        assert!(board.watched_workers().is_empty());
        assert!(board.watch_worker("a", first));
        board.add_worker(address(1));
        assert_eq!(
            board.watched_workers(),
            [address(1)],
            "it was registered already"
        );
        board.remove_worker("a");
        board.add_worker(address(1));
        assert!(!board.watch_worker("a", first));
        assert!(board.watched_workers().is_empty());
        assert!(board.watch_worker("a", registration()));
    }

    #[test]
    fn leases_wait_as_long_as_staging_took() {
        let board = Arc::new(Board::default());
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let submit = || {
            let staging = LeaseStaging {
                time: ms(100),
                is_most: true,
            };
            board.submit("client".to_owned(), staging)
        };
        let lease = submit();
        lease.hold(start, None);
        let state = |lease: &LeaseRecord, now| lease.patience().state(now, None);
        assert_eq!(state(&lease, start + ms(100)), PatienceState::Over);
        lease.stage(start);
        lease.note_result(start + ms(400));
        // A lease that found the data staged says nothing.
        submit().note_result(start + ms(10));
        let next = submit();
        next.hold(start, None);
        assert_eq!(state(&next, start + ms(399)), PatienceState::Left);
        assert_eq!(state(&next, start + ms(400)), PatienceState::Over);
    }

    #[test]
    fn losing_a_lease_wakes_its_submission() {
        let board = Arc::new(Board::default());
        let lease = board.submit("client".to_owned(), LeaseStaging::default());
        lease.lose();
        assert_eq!(lease.phase(), LeasePhase::Waiting, "no worker had it");
        lease.assign("a");
        lease.lose();
        assert_eq!(futures::executor::block_on(lease.lost()), "a");
    }
}
