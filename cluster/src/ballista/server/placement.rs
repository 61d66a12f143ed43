//! The decision which waiting leases run next, and where.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A lease that waits for a worker.
#[derive(Debug, Clone)]
pub(crate) struct WaitingLease {
    pub(crate) client: String,
    pub(crate) order: u64,
    pub(crate) affinity: u64,
    pub(crate) avoid: Vec<String>,
}

/// A worker with free slots.
#[derive(Debug, Clone)]
pub(crate) struct FreeWorker {
    pub(crate) id: String,
    pub(crate) slots: u32,
}

/// Decides which leases run where. Returns pairs of positions in `leases` and `free`.
///
/// The client with the fewest running leases is served first, and of its leases the one with the
/// lowest order. Among the leases that are served, those whose preferred worker has room go there.
/// The others go to any worker with room, so that no slot stays free while a lease waits. The
/// preferred worker is the one with the highest rendezvous hash (Thaler and Ravishankar, 1998) of
/// all known workers, busy ones included: a lease that goes elsewhere once returns.
pub(crate) fn place(
    leases: &[WaitingLease],
    free: &[FreeWorker],
    known: &BTreeSet<String>,
    running: &BTreeMap<String, usize>,
) -> Vec<(usize, usize)> {
    let mut room: Vec<u32> = free.iter().map(|worker| worker.slots).collect();
    let mut waiting = serving_order(leases, running);
    let mut placed = Vec::new();
    loop {
        let slots = room.iter().sum::<u32>() as usize;
        let can_run = |lease: &usize| {
            let avoid = &leases[*lease].avoid;
            free.iter()
                .zip(&room)
                .any(|(worker, room)| *room > 0 && !avoid.contains(&worker.id))
        };
        let served: Vec<usize> = waiting
            .iter()
            .copied()
            .filter(can_run)
            .take(slots)
            .collect();
        if served.is_empty() {
            return placed;
        }
        let before = placed.len();
        place_served(leases, free, known, &served, &mut room, &mut placed);
        waiting.retain(|lease| !placed[before..].iter().any(|(done, _)| done == lease));
    }
}

/// Places the leases `served` on workers with `room`: first those that get their preferred worker.
fn place_served(
    leases: &[WaitingLease],
    free: &[FreeWorker],
    known: &BTreeSet<String>,
    served: &[usize],
    room: &mut [u32],
    placed: &mut Vec<(usize, usize)>,
) {
    let mut others = Vec::new();
    for &lease in served {
        let preferred = preferred(&leases[lease], known);
        let worker = free.iter().position(|worker| Some(&worker.id) == preferred);
        match worker {
            Some(worker) if room[worker] > 0 => {
                room[worker] -= 1;
                placed.push((lease, worker));
            }
            _ => others.push(lease),
        }
    }
    for lease in others {
        let WaitingLease {
            affinity, avoid, ..
        } = &leases[lease];
        let worker = (0..free.len())
            .filter(|&worker| room[worker] > 0 && !avoid.contains(&free[worker].id))
            .max_by_key(|&worker| score(*affinity, &free[worker].id));
        if let Some(worker) = worker {
            room[worker] -= 1;
            placed.push((lease, worker));
        }
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
        let placed = place(&leases, &free, &known, &BTreeMap::new());
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
        let placed = place(&leases, &free, &known, &BTreeMap::new());
        let served: Vec<_> = [("busy", 0), ("busy", 1), ("new", 100), ("new", 101)]
            .map(own)
            .into();
        assert_eq!(orders(&leases, &placed), served);

        let running = BTreeMap::from([("busy".to_owned(), 3)]);
        let placed = place(&leases, &free, &known, &running);
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
            let placed = place(&leases, &free, &known, &BTreeMap::new());
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
        assert_eq!(place(&leases, &free, &known, &BTreeMap::new()).len(), 2);
    }

    #[test]
    fn avoided_workers_are_not_used() {
        let (free, known) = workers(&[("a", 1), ("b", 1)]);
        let mut leases: Vec<_> = (0..3).map(|n| lease("c", n, 1)).collect();
        leases[0].avoid = vec!["a".to_owned(), "b".to_owned()];
        leases[1].avoid = vec!["a".to_owned()];
        let placed = place(&leases, &free, &known, &BTreeMap::new());
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
            let placed = place(&leases, &free, &known, &BTreeMap::new());
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
        assert!(place(&[], &free, &known, &BTreeMap::new()).is_empty());
        let none = BTreeSet::new();
        assert!(place(&[lease("c", 0, 0)], &[], &none, &BTreeMap::new()).is_empty());
    }
}
