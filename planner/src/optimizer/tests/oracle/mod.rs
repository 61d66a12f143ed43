//! Compares the search with an independent enumeration of every legal order and every cache point.
//!
//! The enumeration does not use the optimiser's rules, liveness analysis or cost formulas, but
//! separate definitions of these. Search and enumeration share only the estimates of selectivity
//! and the prices.

mod enumeration;
mod world;

use std::collections::BTreeSet;

use self::enumeration::{
    Base, Least, Rows, after, best, bytes, enumerate, number, over_two, scan_cost,
};
use self::world::{Step, World, slots_of, tree};
use crate::optimizer::Config;
use crate::optimizer::cache::CacheCosts;
use crate::optimizer::coefficients::Coefficients;
use crate::optimizer::explain::{Explained, told};
use crate::optimizer::log2::Log2;
use crate::optimizer::search::{Searched, search};
use crate::optimizer::tree::OperatorTree;

/// Number of random cases per test: the value of the environment variable `FOREBAY_ORACLE_CASES`,
/// or 1000 if the variable is not set.
fn cases() -> u64 {
    let asked = std::env::var("FOREBAY_ORACLE_CASES");
    asked.ok().and_then(|n| n.parse().ok()).unwrap_or(1000)
}

#[test]
fn a_chain_is_ordered_and_cached_as_cheaply_as_any() {
    let mut cached = 0;
    for seed in 0..cases() {
        let mut world = World::new(seed);
        let source = world.source(&[0, 1, 2]);
        let mut slots = slots_of(&source);
        let n = 2 + world.random.below(7);
        let steps = world.steps(&mut slots, n);
        let (wanted, cache) = (world.wanted(&slots), world.cache());
        let base = Base {
            rows: &|_| Rows::of(&source),
            cost: &|needed| scan_cost(&source, needed),
        };
        let least = enumerate(&steps, &base, &wanted, &cache);
        let found = world.chosen(tree(&source, &steps), &wanted, &cache);
        assert_eq!(found, best(least, &cache), "seed {seed}: {steps:#?}");
        cached += u64::from(least.cached < least.each.saturating_mul(cache.epochs.into()));
    }
    // Some of the cheapest plans have a cache, and some have none.
    assert!(cached > 0 && cached < cases());
}

/// Tests that recording proofs does not change the chosen plan, and that the steps of a derivation
/// lead from the cost of the written plan to the cost of the chosen plan.
#[test]
fn a_chain_is_told_as_it_is_chosen() {
    for seed in 0..cases() / 5 {
        let mut world = World::new(seed);
        let source = world.source(&[0, 1, 2]);
        let mut slots = slots_of(&source);
        let n = 2 + world.random.below(7);
        let steps = world.steps(&mut slots, n);
        let (wanted, cache) = (world.wanted(&slots), world.cache());
        let lowered = world.lowered(tree(&source, &steps), &wanted);
        let [plain, proven] = [false, true].map(|proofs| {
            let config = Config {
                cache: cache.clone(),
                proofs,
                ..Config::default()
            };
            let searched = search(world.arena.clone(), &lowered, &config).unwrap();
            (searched, config)
        });
        assert_eq!(plain.0.chosen, proven.0.chosen, "seed {seed}");
        // With proofs, a rule may merge two classes before congruence merges them. So the numbers
        // of applications of rules may differ from the search without proofs. All else must be
        // equal.
        let counts = |searched: &Searched| {
            let search = &searched.report.saturation;
            (search.nodes, search.classes, search.refused.clone())
        };
        assert_eq!(counts(&plain.0), counts(&proven.0), "seed {seed}");
        let told = told(proven.0, &lowered, proven.1).unwrap();
        assert_eq!(led_to(&told), told.report.chosen, "seed {seed}");
        let point = told.cache.chosen();
        assert_eq!(point.is_some(), told.report.cached, "seed {seed}");
        let total = point.map(|point| point.total.clone());
        assert!(total.is_none_or(|total| total == Ok(told.report.chosen)));
    }
}

/// Returns the cost after the last step. Panics unless each step starts at the cost with which the
/// previous step ended.
fn led_to(told: &Explained) -> u128 {
    told.derivation
        .steps
        .iter()
        .fold(told.report.written, |at, step| {
            assert_eq!(step.before, at, "{step:?}");
            step.after
        })
}

#[test]
fn a_union_is_told_as_it_is_chosen() {
    let mut rules = BTreeSet::new();
    for seed in 0..cases() / 5 {
        let mut world = World::new(seed);
        let first = world.source(&[0, 1]);
        let second = world.source_of(1_000, first.slots.clone());
        let arms = [&first, &second].map(|source| {
            let n = world.random.below(3);
            let mut steps = world.steps(&mut slots_of(&first), n);
            steps.retain(|step| step.writes.is_none() && step.reads.is_subset(&slots_of(&first)));
            tree(source, &steps)
        });
        let mut all = slots_of(&first);
        let n = world.random.below(5);
        let above = world.steps(&mut all, n);
        let cat = OperatorTree::Cat(Box::new(arms));
        let whole = above.iter().fold(cat, |tree, step| tree.then(step.param));
        let wanted = world.wanted(&all);
        let lowered = world.lowered(whole, &wanted);
        let config = Config {
            cache: world.cache(),
            proofs: true,
            ..Config::default()
        };
        let searched = search(world.arena.clone(), &lowered, &config).unwrap();
        let told = told(searched, &lowered, config).unwrap();
        // The cost after the last step may differ slightly from that of the chosen plan: the
        // e-graph uses, for a union, the lowest of the estimates of all equivalent plans.
        let ratio = led_to(&told) as f64 / told.report.chosen as f64;
        assert!((0.99..1.01).contains(&ratio), "seed {seed}: {ratio}");
        rules.extend(
            told.derivation
                .steps
                .iter()
                .flat_map(|step| step.rules.clone()),
        );
    }
    assert!(rules.contains("union-distribute"), "{rules:?}");
}

#[test]
fn a_union_is_ordered_and_cached_nearly_as_cheaply_as_any() {
    for seed in 0..cases() {
        let mut world = World::new(seed);
        let first = world.source(&[0, 1]);
        let rows = 1 + world.random.below(100_000);
        let sources = [first.clone(), world.source_of(rows, first.slots.clone())];
        let arms = [0, 1].map(|_| {
            // Steps that write slots are not used, so that both arms have the same columns.
            let n = world.random.below(3);
            let mut slots = slots_of(&first);
            let mut steps = world.steps(&mut slots, n);
            steps.retain(|step| step.writes.is_none() && step.reads.is_subset(&slots_of(&first)));
            steps
        });
        let mut all = slots_of(&first);
        let n = world.random.below(4);
        let above = world.steps(&mut all, n);
        let (wanted, cache) = (world.wanted(&all), world.cache());
        let mut least = Least::NONE;
        // Enumerates all plans in which a subset of the steps above the union is moved into both
        // arms.
        for mask in 0..1_u32 << above.len() {
            let (below, over): (Vec<usize>, Vec<usize>) =
                (0..above.len()).partition(|i| mask >> i & 1 == 1);
            let may = below.iter().all(|&i| {
                let step = &above[i];
                let under = over.iter().filter(|&&o| o < i);
                step.take.is_none()
                    && !step.pinned
                    && under.into_iter().all(|&o| step.passes(&above[o]))
            });
            if !may {
                continue;
            }
            let pushed: Vec<Step> = below.iter().map(|&i| above[i].clone()).collect();
            let over: Vec<Step> = over.iter().map(|&i| above[i].clone()).collect();
            let chains = [0, 1].map(|i| [arms[i].clone(), pushed.clone()].concat());
            let united = |needed: &BTreeSet<u32>| {
                let rows = [0, 1].map(|i| after(&chains[i], Rows::of(&sources[i]), needed));
                let sum = |a: i32, b: i32| {
                    let sum = u64::try_from(number(a) + number(b));
                    Log2::of(sum.unwrap_or(u64::MAX)).0
                };
                Rows {
                    log: sum(rows[0].log, rows[1].log),
                    pool: sum(rows[0].pool, rows[1].pool),
                    bytes: rows[0].bytes.clone(),
                    draws: rows.iter().any(|r| r.draws),
                }
            };
            let cost = |needed: &BTreeSet<u32>| {
                let of = |i: usize| (&sources[i], chains[i].as_slice(), needed.clone());
                over_two([of(0), of(1)], &united(needed), needed, &cache)
            };
            let base = Base {
                rows: &united,
                cost: &cost,
            };
            let found = enumerate(&over, &base, &wanted, &cache);
            least.each = least.each.min(found.each);
            least.cached = least.cached.min(found.cached);
        }
        let [a, b] = [tree(&sources[0], &arms[0]), tree(&sources[1], &arms[1])];
        let cat = OperatorTree::Cat(Box::new([a, b]));
        let whole = above.iter().fold(cat, |tree, step| tree.then(step.param));
        let found = world.chosen(whole, &wanted, &cache) as f64;
        let ratio = found / best(least, &cache) as f64;
        assert!(
            (0.995..1.005).contains(&ratio),
            "seed {seed}: {ratio}: {arms:#?} {above:#?}"
        );
    }
}

/// Twelve operators that all commute have 479,001,600 orders. But the cost of an operator depends
/// only on the set of operators below that operator, and only 4,096 such sets exist.
#[test]
fn twelve_commuting_operators_are_ordered_at_the_optimum() {
    for seed in 0..6 {
        let mut world = World::new(seed);
        let source = world.source(&[0, 1, 2]);
        let steps: Vec<Step> = (0..12)
            .map(|number| {
                // Five operators write one slot each, and the others are filters. All of them read
                // only stored slots.
                loop {
                    let mut step = world.step(&mut slots_of(&source), number);
                    let wanted = (number < 5).then_some(3 + number as u32);
                    let own = step.writes.map(|(slot, _)| slot) == wanted;
                    if own && !step.pinned && !step.fallible {
                        step.draws = false;
                        return step;
                    }
                }
            })
            .collect();
        let wanted: BTreeSet<u32> = (0..8).collect();
        let cache = CacheCosts::default();
        let mut least = vec![u128::MAX; 1 << steps.len()];
        let live = |mask: usize| -> BTreeSet<u32> {
            let made = |slot: &u32| {
                let by = steps
                    .iter()
                    .position(|s| s.writes.is_some_and(|w| w.0 == *slot));
                by.is_none_or(|by| mask >> by & 1 == 1)
            };
            wanted.iter().copied().filter(made).collect()
        };
        let mut rows = vec![Rows::of(&source); least.len()];
        least[0] = scan_cost(&source, &live(0)).each;
        for mask in 0..least.len() {
            for (next, step) in steps.iter().enumerate() {
                if mask >> next & 1 == 1 {
                    continue;
                }
                let before = &rows[mask];
                let over = mask | 1 << next;
                let (above, after) = (live(over), before.clone().after(step));
                let written = step.writes.map_or(0, |(_, b)| bytes(b));
                let compute =
                    step.cost[0] + before.live(&step.reads) * step.cost[1] + written * step.cost[2];
                let mut own = 1 + number(before.log) * compute;
                if step.is_filter() {
                    let prices = Coefficients::declared();
                    own += number(after.log)
                        * (after.live(&above) * u128::from(prices.copy) + u128::from(prices.row));
                }
                rows[over] = after;
                least[over] = least[over].min(least[mask].saturating_add(own));
            }
        }
        let found = world.chosen(tree(&source, &steps), &wanted, &cache);
        assert_eq!(found, least[least.len() - 1], "seed {seed}");
    }
}
