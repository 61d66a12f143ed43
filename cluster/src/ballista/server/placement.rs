//! The decision which waiting leases run next, and where.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A lease that waits for a worker.
#[derive(Debug, Clone)]
pub(crate) struct WaitingLease {
    pub(crate) client: String,
    pub(crate) order: u64,
    pub(crate) affinity: u64,
    pub(crate) avoid: Vec<String>,
    /// The workers that have the lease's data staged.
    pub(crate) staged: Vec<String>,
    /// True if the lease may wait for one of them.
    pub(crate) is_patient: bool,
    /// True if a worker that runs the lease has most of the data of the affinity key then.
    pub(crate) stages_most: bool,
}

/// A worker with free slots.
#[derive(Debug, Clone)]
pub(crate) struct FreeWorker {
    pub(crate) id: String,
    pub(crate) slots: u32,
}

/// The decision which leases run where.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Pairs of positions: of a lease, and of the free worker that runs it.
    pub(crate) placed: Vec<(usize, usize)>,
    /// Positions of the leases that wait for a worker that has their data, although another worker
    /// has a free slot.
    pub(crate) held: Vec<usize>,
}

/// Decides which leases run where.
///
/// The client with the fewest running leases is served first, and of its leases the one with the
/// lowest order. A lease goes to a worker that has its data staged. While these are busy, a patient
/// lease waits for one of them. Other leases that are served go to their preferred worker if it has
/// room, and else to any worker with room, so that no slot stays free while an impatient lease
/// waits. The preferred worker is the one with the highest rendezvous hash (Thaler and
/// Ravishankar, 1998) of all known workers, busy ones included.
pub(crate) fn place(
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
        staged: HashMap::new(),
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
    /// For each affinity key, the workers in `free` that were given leases of the key.
    staged: HashMap<u64, Vec<usize>>,
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
        let new = self.staged.get(&lease.affinity).into_iter().flatten();
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
        if !self.leases[lease].is_patient {
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
        if stages_most || self.staged_by(lease).next().is_none() {
            self.staged.entry(affinity).or_default().push(worker);
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
mod tests {
    use super::*;

    fn lease(client: &str, order: u64, affinity: u64) -> WaitingLease {
        WaitingLease {
            client: client.to_owned(),
            order,
            affinity,
            avoid: vec![],
            staged: vec![],
            is_patient: false,
            stages_most: false,
        }
    }

    fn workers(slots: &[(&str, u32)]) -> (Vec<FreeWorker>, BTreeSet<String>) {
        let free = slots.iter().map(|&(id, slots)| FreeWorker {
            id: id.to_owned(),
            slots,
        });
        (
            free.collect(),
            slots.iter().map(|(id, _)| (*id).to_owned()).collect(),
        )
    }

    fn orders(leases: &[WaitingLease], placed: &[(usize, usize)]) -> Vec<(String, u64)> {
        let mut orders: Vec<_> = placed
            .iter()
            .map(|&(lease, _)| (leases[lease].client.clone(), leases[lease].order))
            .collect();
        orders.sort();
        orders
    }

    #[test]
    fn the_lowest_orders_run_first() {
        let leases: Vec<_> = [5, 3, 9, 1].map(|order| lease("c", order, order)).into();
        let (free, known) = workers(&[("a", 1), ("b", 1)]);
        let placed = place(&leases, &free, &known, &BTreeMap::new()).placed;
        assert_eq!(
            orders(&leases, &placed),
            [("c".to_owned(), 1), ("c".to_owned(), 3)]
        );
    }

    #[test]
    fn clients_share_the_slots() {
        let mut leases: Vec<_> = (0..10).map(|order| lease("busy", order, order)).collect();
        leases.extend((100..103).map(|order| lease("new", order, order)));
        let (free, known) = workers(&[("a", 2), ("b", 2)]);
        let placed = place(&leases, &free, &known, &BTreeMap::new()).placed;
        let served: Vec<_> = [("busy", 0), ("busy", 1), ("new", 100), ("new", 101)]
            .map(own)
            .into();
        assert_eq!(orders(&leases, &placed), served);

        let running = BTreeMap::from([("busy".to_owned(), 3)]);
        let placed = place(&leases, &free, &known, &running).placed;
        let served: Vec<_> = [("busy", 0), ("new", 100), ("new", 101), ("new", 102)]
            .map(own)
            .into();
        assert_eq!(orders(&leases, &placed), served);
    }

    fn own((client, order): (&str, u64)) -> (String, u64) {
        (client.to_owned(), order)
    }

    #[test]
    fn leases_of_one_affinity_prefer_one_worker() {
        let (free, known) = workers(&[("a", 4), ("b", 4), ("c", 4)]);
        for affinity in 0..50 {
            let leases: Vec<_> = (0..4).map(|order| lease("c", order, affinity)).collect();
            let placed = place(&leases, &free, &known, &BTreeMap::new()).placed;
            assert_eq!(placed.len(), 4);
            assert!(placed.iter().all(|(_, worker)| *worker == placed[0].1));
        }
    }

    #[test]
    fn a_lost_worker_moves_only_its_own_leases() {
        let (_, all) = workers(&[("a", 1), ("b", 1), ("c", 1)]);
        let fewer = all.iter().filter(|id| *id != "b").cloned().collect();
        let mut moved = 0;
        for affinity in 0..300 {
            let lease = lease("c", 0, affinity);
            let before = preferred(&lease, &all).unwrap();
            let after = preferred(&lease, &fewer).unwrap();
            assert!(before == after || before == "b");
            moved += usize::from(before != after);
        }
        assert!((50..150).contains(&moved), "{moved} of 300");
    }

    #[test]
    fn a_busy_worker_is_not_waited_for() {
        let (_, known) = workers(&[("a", 1), ("b", 1)]);
        let free = vec![FreeWorker {
            id: "a".to_owned(),
            slots: 2,
        }];
        let leases: Vec<_> = (0..2).map(|n| lease("c", n, n)).collect();
        let placed = place(&leases, &free, &known, &BTreeMap::new()).placed;
        assert_eq!(placed.len(), 2);
    }

    #[test]
    fn a_patient_lease_waits_for_a_worker_that_has_its_data() {
        let (free, _) = workers(&[("a", 3)]);
        let known = BTreeSet::from(["a", "b", "c"].map(str::to_owned));
        let mut leases: Vec<_> = (0..3).map(|n| lease("c", n, n)).collect();
        for (lease, staged) in leases.iter_mut().zip(["b", "a", "gone"]) {
            lease.is_patient = true;
            lease.staged = vec![staged.to_owned()];
        }
        let waits = |leases: &[WaitingLease]| place(leases, &free, &known, &BTreeMap::new());
        let waiting = waits(&leases);
        assert_eq!((waiting.placed.len(), waiting.held), (2, vec![0]));
        // It goes on without patience, and where its worker may not run it.
        leases[0].is_patient = false;
        assert_eq!(waits(&leases[..1]).placed, [(0, 0)]);
        leases[0].is_patient = true;
        leases[0].avoid = vec!["b".to_owned()];
        assert_eq!(waits(&leases[..1]).placed, [(0, 0)]);
        // Nobody is held back from slots that do not exist.
        leases[0].avoid = vec![];
        let none = place(&leases, &[], &known, &BTreeMap::new());
        assert_eq!(none, Placement::default());
    }

    #[test]
    fn patient_leases_of_one_key_follow_the_first() {
        let (free, known) = workers(&[("a", 1), ("b", 1), ("c", 1)]);
        let mut leases: Vec<_> = (0..4).map(|n| lease("c", n, 9)).collect();
        for lease in &mut leases {
            lease.is_patient = true;
        }
        let placement = place(&leases, &free, &known, &BTreeMap::new());
        assert_eq!(placement.placed.len(), 1);
        assert_eq!((placement.placed[0].0, placement.held), (0, vec![1, 2, 3]));
    }

    #[test]
    fn a_worker_with_a_small_part_of_the_data_is_not_followed() {
        let (free, known) = workers(&[("a", 1), ("b", 4)]);
        let mut leases: Vec<_> = (0..3).map(|n| lease("c", n, 9)).collect();
        for lease in &mut leases {
            lease.staged = vec!["a".to_owned()];
            lease.is_patient = true;
        }
        leases[0].is_patient = false;
        leases[1].is_patient = false;
        let placed = |leases: &[WaitingLease]| {
            let placement = place(leases, &free, &known, &BTreeMap::new());
            (placement.placed, placement.held)
        };
        // The second lease goes to `b`, and the third one follows it only if that stages enough.
        assert_eq!(placed(&leases), (vec![(0, 0), (1, 1)], vec![2]));
        leases[1].stages_most = true;
        assert_eq!(placed(&leases), (vec![(0, 0), (1, 1), (2, 1)], vec![]));
    }

    #[test]
    fn avoided_workers_are_not_used() {
        let (free, known) = workers(&[("a", 1), ("b", 1)]);
        let mut leases: Vec<_> = (0..3).map(|n| lease("c", n, 1)).collect();
        leases[0].avoid = vec!["a".to_owned(), "b".to_owned()];
        leases[1].avoid = vec!["a".to_owned()];
        let placed = place(&leases, &free, &known, &BTreeMap::new()).placed;
        assert_eq!(
            orders(&leases, &placed),
            [("c".to_owned(), 1), ("c".to_owned(), 2)]
        );
        assert!(placed.contains(&(1, 1)) && placed.contains(&(2, 0)));
    }

    #[test]
    fn every_slot_is_used_while_leases_wait() {
        let (free, known) = workers(&[("a", 3), ("b", 1), ("c", 2)]);
        for seed in 0..50 {
            let leases: Vec<_> = (0..9).map(|n| lease("c", n, n * seed)).collect();
            let placed = place(&leases, &free, &known, &BTreeMap::new()).placed;
            assert_eq!(placed.len(), 6);
            for (position, worker) in free.iter().enumerate() {
                let used = placed.iter().filter(|(_, used)| *used == position).count();
                assert_eq!(used, worker.slots as usize);
            }
        }
    }

    #[test]
    fn nothing_to_do_is_fine() {
        let (free, known) = workers(&[("a", 1)]);
        let nothing = Placement::default();
        assert_eq!(place(&[], &free, &known, &BTreeMap::new()), nothing);
        let none = BTreeSet::new();
        let leases = [lease("c", 0, 0)];
        assert_eq!(place(&leases, &[], &none, &BTreeMap::new()), nothing);
    }
}
