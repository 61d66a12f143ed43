//! The decision which waiting leases run next, and where. It knows no engine.

mod patience;
mod staged_keys;
mod staging_pace;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

pub use patience::{Patience, PatienceState};
pub use staged_keys::{StagedKey, StagedKeys};
pub use staging_pace::StagingPace;

/// A lease that waits for a worker.
#[derive(Debug, Clone)]
pub struct WaitingLease {
    /// Name of the lease's client.
    pub client: String,
    /// Position of the lease in its client's stream.
    pub order: u64,
    /// Leases with the same affinity key share staged data.
    pub affinity: u64,
    /// The workers that must not run the lease.
    pub avoid: Vec<String>,
    /// The workers that have the lease's data staged.
    pub staged: Vec<String>,
    /// Its patience while it waits for one of them.
    pub patience: PatienceState,
    /// True if a worker that runs the lease has most of the data of the affinity key then.
    pub stages_most: bool,
}

/// A worker with free slots.
#[derive(Debug, Clone)]
pub struct FreeWorker {
    /// Name of the worker.
    pub id: String,
    /// Number of leases that it can take.
    pub slots: u32,
}

/// The decision which leases run where.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Pairs of positions: of a lease, and of the free worker that runs it.
    pub placed: Vec<(usize, usize)>,
    /// Positions of the leases that wait for a worker that has their data, although another worker
    /// has a free slot.
    pub held: Vec<usize>,
}

/// Decides which leases run where.
///
/// The client with the fewest running leases is served first, and of its leases the one with the
/// lowest order. A lease goes to a worker that has its data staged. While these are busy, a lease with
/// patience left waits for one of them. Other leases that are served go to their preferred worker if
/// it has room, and else to any worker with room. No slot stays free while a lease without patience
/// waits, unless another worker just began to stage its data. The preferred worker is the one with the
/// highest rendezvous hash (Thaler and Ravishankar, 1998) of all known workers, busy ones included.
pub fn place(
    leases: &[WaitingLease],
    free: &[FreeWorker],
    known: &BTreeSet<String>,
    running: &BTreeMap<String, usize>,
) -> Placement {
    let mut round = Round {
        leases,
        free,
        known,
        room: free.iter().map(|worker| worker.slots).collect(),
        staging: HashMap::new(),
        placed: Vec::new(),
    };
    let mut waiting = serving_order(leases, running);
    loop {
        let slots = round.room.iter().sum::<u32>() as usize;
        let can_run = |lease: &usize| round.has_room(*lease) && !round.is_held(*lease);
        let served = waiting.iter().copied().filter(can_run).take(slots);
        let served: Vec<usize> = served.collect();
        let before = round.placed.len();
        round.serve(&served);
        if round.placed.len() == before {
            waiting.retain(|&lease| round.has_room(lease));
            return Placement {
                placed: round.placed,
                held: waiting,
            };
        }
        waiting.retain(|lease| !round.placed[before..].iter().any(|(done, _)| done == lease));
    }
}

/// The state of a decision.
struct Round<'a> {
    leases: &'a [WaitingLease],
    free: &'a [FreeWorker],
    known: &'a BTreeSet<String>,
    /// Free slots of each worker in `free`.
    room: Vec<u32>,
    /// For each affinity key, the workers in `free` that begin to stage its data.
    staging: HashMap<u64, Vec<usize>>,
    placed: Vec<(usize, usize)>,
}

impl Round<'_> {
    /// Returns `true` if a worker that may run the lease has room.
    fn has_room(&self, lease: usize) -> bool {
        let avoid = &self.leases[lease].avoid;
        let mut free = self.free.iter().zip(&self.room);
        free.any(|(worker, room)| *room > 0 && !avoid.contains(&worker.id))
    }

    /// Returns the workers that have the data of a lease and may run it.
    fn staged_by(&self, lease: usize) -> impl Iterator<Item = &str> {
        let lease = &self.leases[lease];
        let known = { lease.staged.iter() }.filter(|id| self.known.contains(*id));
        let new = self.staging.get(&lease.affinity).into_iter().flatten();
        let new = new.map(|&worker| &self.free[worker].id);
        let may_run = |id: &&String| !lease.avoid.contains(id);
        known.chain(new).filter(may_run).map(String::as_str)
    }

    fn room_of(&self, id: &str) -> Option<usize> {
        let worker = self.free.iter().position(|worker| worker.id == id)?;
        (self.room[worker] > 0).then_some(worker)
    }

    /// Returns `true` if a lease waits for a worker that has its data.
    fn is_held(&self, lease: usize) -> bool {
        let WaitingLease {
            patience, affinity, ..
        } = &self.leases[lease];
        let waits = match patience {
            PatienceState::Never => false,
            PatienceState::Left => true,
            PatienceState::Over => self.staging.contains_key(affinity),
        };
        if !waits {
            return false;
        }
        let mut staged = self.staged_by(lease).peekable();
        staged.peek().is_some() && staged.all(|id| self.room_of(id).is_none())
    }

    /// Returns the worker with room where a lease runs best, if that one has room.
    fn home(&self, lease: usize) -> Option<usize> {
        let mut staged = self.staged_by(lease).peekable();
        if staged.peek().is_some() {
            return staged.find_map(|id| self.room_of(id));
        }
        self.room_of(preferred(&self.leases[lease], self.known)?)
    }

    /// Places the leases `served`: first those whose best worker has room.
    fn serve(&mut self, served: &[usize]) {
        let mut others = Vec::new();
        for &lease in served {
            match self.home(lease) {
                Some(worker) => self.give(lease, worker),
                None => others.push(lease),
            }
        }
        for lease in others {
            if self.is_held(lease) {
                continue;
            }
            let WaitingLease {
                affinity, avoid, ..
            } = &self.leases[lease];
            let worker = (0..self.free.len())
                .filter(|&worker| self.room[worker] > 0 && !avoid.contains(&self.free[worker].id))
                .max_by_key(|&worker| score(*affinity, &self.free[worker].id));
            if let Some(worker) = worker {
                self.give(lease, worker);
            }
        }
    }

    fn give(&mut self, lease: usize, worker: usize) {
        self.room[worker] -= 1;
        let WaitingLease {
            affinity,
            stages_most,
            ..
        } = self.leases[lease];
        let has_data = self.staged_by(lease).any(|id| *id == self.free[worker].id);
        if !has_data && (stages_most || self.staged_by(lease).next().is_none()) {
            self.staging.entry(affinity).or_default().push(worker);
        }
        self.placed.push((lease, worker));
    }
}

/// Returns the positions of `leases` in the order in which they are served.
fn serving_order(leases: &[WaitingLease], running: &BTreeMap<String, usize>) -> Vec<usize> {
    let mut of_client: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (position, lease) in leases.iter().enumerate() {
        of_client.entry(&lease.client).or_default().push(position);
    }
    let mut ranked = Vec::with_capacity(leases.len());
    for (client, mut positions) in of_client {
        positions.sort_by_key(|&position| leases[position].order);
        let running = running.get(client).copied().unwrap_or(0);
        ranked.extend(positions.into_iter().zip(running..));
    }
    // The sort is stable, so clients with equally many leases alternate.
    ranked.sort_by_key(|&(_, rank)| rank);
    ranked.into_iter().map(|(position, _)| position).collect()
}

/// Returns the known worker that a lease prefers, of those that may run it.
fn preferred<'a>(lease: &WaitingLease, known: &'a BTreeSet<String>) -> Option<&'a String> {
    known
        .iter()
        .filter(|id| !lease.avoid.contains(id))
        .max_by_key(|id| score(lease.affinity, id))
}

/// Returns the rendezvous hash of an affinity key and a worker.
fn score(affinity: u64, worker: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (affinity, worker).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
