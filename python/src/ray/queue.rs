//! Leases that wait for actors of Ray, and their placement.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay::forebay_cluster::engine::LeaseStaging;
use forebay::forebay_cluster::placement::{
    FreeWorker, Patience, StagedKeys, StagingPace, WaitingLease, place,
};
use pyo3::prelude::*;
use tokio::time::Instant;

/// Numbers of leases with the actors that compute them, numbers of those that no actor may compute, and the time
/// when those that are held back are to be placed again.
type Placed = (Vec<(u64, String)>, Vec<u64>, Option<f64>);

/// The leases that wait for an actor, by their numbers. Actors have names, and times are seconds of one clock.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct LeaseQueue {
    /// Zero of the clock.
    zero: Instant,
    staged: StagedKeys,
    staging_pace: StagingPace,
    waiting: Mutex<BTreeMap<u64, QueuedLease>>,
    /// Leases that run and for which data is staged: the time since when, and the estimated time.
    staging: Mutex<BTreeMap<u64, (Instant, Duration)>>,
}

#[derive(Debug)]
struct QueuedLease {
    order: u64,
    affinity: u64,
    avoid: Vec<String>,
    patience: Patience,
}

#[pymethods]
impl LeaseQueue {
    #[new]
    fn new() -> Self {
        Self {
            zero: Instant::now(),
            staged: StagedKeys::default(),
            staging_pace: StagingPace::default(),
            waiting: Mutex::default(),
            staging: Mutex::default(),
        }
    }

    /// Adds a lease. `staging` is the time in seconds that staging its data takes, and true if this is most of the data
    /// of its affinity key.
    fn add(
        &self,
        number: u64,
        order: u64,
        affinity: u64,
        staging: (f64, bool),
        avoid: Vec<String>,
    ) {
        let (seconds, is_most) = staging;
        let lease = QueuedLease {
            order,
            affinity,
            avoid,
            patience: Patience::new(LeaseStaging {
                time: Duration::try_from_secs_f64(seconds).unwrap_or_default(),
                is_most,
            }),
        };
        locked(&self.waiting).insert(number, lease);
    }

    /// Removes a lease.
    fn remove(&self, number: u64) {
        locked(&self.waiting).remove(&number);
    }

    /// Notes that a lease which an actor had has ended, at the time `now` if it was computed.
    fn ended(&self, number: u64, now: Option<f64>) {
        let staging = locked(&self.staging).remove(&number);
        if let (Some((since, estimated)), Some(now)) = (staging, now) {
            let took = self.time(now).saturating_duration_since(since);
            self.staging_pace.measure(estimated, took);
        }
    }

    /// Removes all leases, and returns their numbers.
    fn clear(&self) -> Vec<u64> {
        std::mem::take(&mut *locked(&self.waiting))
            .into_keys()
            .collect()
    }

    /// Takes the leases that actors can compute at the time `now`, and those that no actor may compute. `free` has the
    /// actors with free slots, and `known` all.
    fn place(&self, free: Vec<(String, u32)>, known: BTreeSet<String>, now: f64) -> Placed {
        let now = self.time(now);
        let mut waiting = locked(&self.waiting);
        let may_run = |lease: &QueuedLease| known.iter().any(|name| !lease.avoid.contains(name));
        let stranded = waiting.extract_if(.., |_, lease| !may_run(lease));
        let stranded = stranded.map(|(number, _)| number).collect();
        let (numbers, leases): (Vec<u64>, Vec<WaitingLease>) = waiting
            .iter()
            .map(|(number, lease)| (*number, self.described(lease, now)))
            .unzip();
        let free = free.into_iter().map(|(id, slots)| FreeWorker { id, slots });
        let free: Vec<FreeWorker> = free.collect();
        // The leases of a process have one client.
        let placement = place(&leases, &free, &known, &BTreeMap::new());
        let mut placed = Vec::with_capacity(placement.placed.len());
        for (lease, worker) in placement.placed {
            let (number, name) = (numbers[lease], &free[worker].id);
            let WaitingLease {
                affinity,
                stages_most,
                ..
            } = leases[lease];
            let staged = &self.staged;
            let stages = staged.note_run(affinity, name, stages_most, &known, now);
            let lease = waiting.remove(&number);
            if let Some(lease) = lease.filter(|_| stages) {
                let estimated = lease.patience.staging();
                locked(&self.staging).insert(number, (now, estimated));
            }
            placed.push((number, name.clone()));
        }
        // Actors that begin to stage data have been noted: leases that need the data wait anew.
        let held = { placement.held.iter() }.filter_map(|&lease| waiting.get(&numbers[lease]));
        let slowdown = self.staging_pace.slowdown();
        let ends = held.map(|lease| {
            let staged = self.staged.get(lease.affinity);
            let since = staged.map(|staged| staged.since);
            lease.patience.hold(now, since, slowdown)
        });
        let again = ends.min();
        let again = again.map(|time| time.duration_since(self.zero).as_secs_f64());
        (placed, stranded, again)
    }
}

impl LeaseQueue {
    /// Returns a time in seconds as an instant.
    fn time(&self, seconds: f64) -> Instant {
        self.zero + Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Returns what placement needs to know of a lease.
    fn described(&self, lease: &QueuedLease, now: Instant) -> WaitingLease {
        let staged = self.staged.get(lease.affinity);
        let since = staged.as_ref().map(|staged| staged.since);
        WaitingLease {
            client: String::new(),
            order: lease.order,
            affinity: lease.affinity,
            avoid: lease.avoid.clone(),
            staged: staged.map_or_else(Vec::new, |staged| staged.workers),
            patience: lease.patience.state(now, since),
            stages_most: lease.patience.stages_most(),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
