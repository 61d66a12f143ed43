//! Tests of the placement of leases.

use super::*;

fn lease(client: &str, order: u64, affinity: u64) -> WaitingLease {
    WaitingLease {
        client: client.to_owned(),
        order,
        affinity,
        avoid: vec![],
        staged: vec![],
        patience: PatienceState::Never,
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
        lease.patience = PatienceState::Left;
        lease.staged = vec![staged.to_owned()];
    }
    let waits = |leases: &[WaitingLease]| place(leases, &free, &known, &BTreeMap::new());
    let waiting = waits(&leases);
    assert_eq!((waiting.placed.len(), waiting.held), (2, vec![0]));
    // It goes on without patience, and where its worker may not run it.
    leases[0].patience = PatienceState::Over;
    assert_eq!(waits(&leases[..1]).placed, [(0, 0)]);
    leases[0].patience = PatienceState::Left;
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
        lease.patience = PatienceState::Left;
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
        lease.patience = PatienceState::Left;
    }
    leases[0].patience = PatienceState::Over;
    leases[1].patience = PatienceState::Over;
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
fn one_more_worker_at_a_time_stages_the_data_of_leases_that_waited_too_long() {
    let (free, mut known) = workers(&[("b", 1), ("c", 1), ("d", 1)]);
    known.insert("a".to_owned());
    let mut leases: Vec<_> = (0..4).map(|n| lease("c", n, 9)).collect();
    for lease in &mut leases {
        lease.staged = vec!["a".to_owned()];
        lease.patience = PatienceState::Over;
        lease.stages_most = true;
    }
    let placement = place(&leases, &free, &known, &BTreeMap::new());
    assert_eq!(placement.placed.len(), 1);
    assert_eq!((placement.placed[0].0, placement.held), (0, vec![1, 2, 3]));
    // Leases that stage too little for others do not wait for each other.
    for lease in &mut leases {
        lease.stages_most = false;
    }
    let placement = place(&leases, &free, &known, &BTreeMap::new());
    assert_eq!(placement.placed.len(), 3);
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
