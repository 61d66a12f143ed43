//! The search against an enumeration of its own: every legal order, and every single cache point.
//!
//! The enumeration has its own notion of which operators may pass each other, its own account of what
//! is needed where, and its own formulas of cost; it shares estimates of selectivity and the prices.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::logical_plan::builder::LogicalTableSource;
use datafusion::logical_expr::{Expr, lit};
use forebay_udfs::facts::Algebra;

use super::arena::{Arena, ParamId, ScanSpec};
use super::cache::{Budget, CacheCosts};
use super::coefficients::{Coefficients, OpCost};
use super::explain::{Explained, told};
use super::facts::{Log2, selectivity};
use super::lower::Lowered;
use super::slots::{Slot, SlotSet};
use super::spec::{OpKind, OpSpec};
use super::tree::Tree;
use super::{Config, Searched, search};
use crate::rows::slot as column;

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, figure 16).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// An operator as the enumeration sees it.
#[derive(Debug, Clone)]
struct Step {
    param: ParamId,
    reads: BTreeSet<u32>,
    /// Slot and bytes of what it writes.
    writes: Option<(u32, u64)>,
    /// What it keeps of the rows.
    kept: i32,
    /// Rows at most.
    take: Option<u64>,
    shuffled: bool,
    fallible: bool,
    draws: bool,
    pinned: bool,
    cost: [u128; 3],
}

impl Step {
    fn is_filter(&self) -> bool {
        self.writes.is_none() && self.take.is_none()
    }

    /// Whether this step, written above `below`, may come before it.
    fn passes(&self, below: &Self) -> bool {
        if self.pinned || below.pinned {
            return false;
        }
        let reads = |a: &Self, b: &Self| b.writes.is_some_and(|(slot, _)| a.reads.contains(&slot));
        match (self.writes, below.writes) {
            (Some((a, _)), Some((b, _))) => a != b && !reads(self, below) && !reads(below, self),
            (None, None) => {
                let filters = self.is_filter() && below.is_filter();
                filters && !(self.fallible && below.fallible)
            }
            // A filter or a take below a function.
            (None, Some(_)) => self.take.is_some() || !reads(self, below),
            (Some(_), None) => below.take.is_some() || !reads(below, self),
        }
    }
}

/// A source: rows, and bytes of its slots.
#[derive(Debug, Clone)]
struct Source {
    scan: super::arena::ScanId,
    rows: u64,
    slots: Vec<(u32, u64)>,
}

struct World {
    random: Random,
    arena: Arena,
    slots: Vec<Slot>,
    scans: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut arena = Arena::default();
        let slots = (0..8).map(|i| arena.slot(&format!("s{i}"))).collect();
        Self {
            random: Random(seed),
            arena,
            slots,
            scans: 0,
        }
    }

    fn name(&self, slot: u32) -> &str {
        self.arena.name(self.slots[slot as usize])
    }

    fn set<'a>(&self, slots: impl IntoIterator<Item = &'a u32>) -> SlotSet {
        slots.into_iter().map(|&s| self.slots[s as usize]).collect()
    }

    fn source(&mut self, slots: &[u32]) -> Source {
        let rows = 1 + self.random.below(100_000);
        let slots: Vec<(u32, u64)> = slots
            .iter()
            .map(|&slot| (slot, 1 + self.random.below(100_000)))
            .collect();
        self.source_of(rows, slots)
    }

    fn source_of(&mut self, rows: u64, slots: Vec<(u32, u64)>) -> Source {
        let fields = slots.iter().map(|&(slot, bytes)| {
            let data_type = DataType::FixedSizeBinary(bytes as i32);
            Field::new(self.name(slot), data_type, false)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let columns = slots.iter().enumerate();
        let columns = columns.map(|(i, &(slot, _))| (i, self.slots[slot as usize]));
        let columns = columns.collect();
        let scan = self.arena.add_scan(ScanSpec {
            occurrence: self.scans,
            name: "t".to_owned(),
            source: Arc::new(LogicalTableSource::new(schema)),
            format: None,
            columns,
            rows: Some(rows),
            row_bytes: None,
        });
        self.scans += 1;
        Source { scan, rows, slots }
    }

    /// A step over rows that have `slots`, to which it adds what it writes.
    fn step(&mut self, slots: &mut BTreeSet<u32>, number: usize) -> Step {
        let mut reads = BTreeSet::new();
        for _ in 0..1 + self.random.below(2) {
            let all: Vec<u32> = slots.iter().copied().collect();
            reads.insert(all[self.random.below(all.len() as u64) as usize]);
        }
        let cost = [
            self.random.below(1_000_000_000),
            self.random.below(5_000),
            self.random.below(5_000),
        ];
        let (fallible, draws, pinned) = (
            self.random.one_in(3),
            self.random.one_in(5),
            self.random.one_in(12),
        );
        let read = self
            .name(reads.iter().copied().min().unwrap_or(0))
            .to_owned();
        let (kind, writes, kept) = match self.random.below(10) {
            0..4 => {
                let predicate = match self.random.below(4) {
                    0 => column(&read).eq(lit(number as i64)),
                    1 => column(&read).lt(lit(number as i64)),
                    2 => column(&read).is_not_null(),
                    _ => column(&read)
                        .eq(lit(1))
                        .and(column(&read).lt(lit(number as i64))),
                };
                let kept = selectivity(&predicate).0;
                let predicate = Box::new(predicate);
                (OpKind::Filter { predicate }, None, kept)
            }
            _ => {
                let slot = match self.random.one_in(2) {
                    true => *reads.iter().next().unwrap_or(&0),
                    false => self.random.below(8) as u32,
                };
                let bytes = 1 + self.random.below(300_000);
                let value = ScalarValue::FixedSizeBinary(bytes as i32, None);
                let kind = OpKind::Row {
                    slot: self.slots[slot as usize],
                    expr: Box::new(Expr::Literal(value, None)),
                };
                (kind, Some((slot, bytes)), 0)
            }
        };
        let spec = OpSpec {
            text: format!("step {number} {kind:?}"),
            reads: self.set(&reads),
            writes: self.set(writes.iter().map(|(slot, _)| slot)),
            draws,
            fallible,
            pinned,
            algebra: Algebra::Opaque,
            cost: OpCost {
                ps_per_row: cost[0],
                ps_per_byte_in: cost[1],
                ps_per_byte_out: cost[2],
            },
            kind,
        };
        slots.extend(writes.iter().map(|&(slot, _)| slot));
        Step {
            param: self.arena.intern(spec),
            reads,
            writes,
            kept,
            take: None,
            shuffled: false,
            fallible,
            draws,
            pinned,
            cost: cost.map(u128::from),
        }
    }

    fn take(&mut self) -> Step {
        let (take, shuffled) = (1 + self.random.below(1000), self.random.one_in(2));
        Step {
            param: self.arena.take(0, take, shuffled),
            reads: BTreeSet::new(),
            writes: None,
            kept: 0,
            take: Some(take),
            shuffled,
            fallible: false,
            draws: false,
            pinned: false,
            cost: [0; 3],
        }
    }

    fn steps(&mut self, slots: &mut BTreeSet<u32>, n: u64) -> Vec<Step> {
        // Two takes would become one.
        let take = self.random.below(12);
        (0..n)
            .map(|number| match number == take {
                true => self.take(),
                false => self.step(slots, number as usize),
            })
            .collect()
    }

    fn cache(&mut self) -> CacheCosts {
        let epochs = [1, 2, 10, 90][self.random.below(4) as usize];
        let room = [0, 1 << 30, 1 << 34, u128::MAX][self.random.below(4) as usize];
        let budget = Budget {
            bytes: room,
            write: self.random.below(2_000).into(),
            read: self.random.below(2_000).into(),
            row: self.random.below(100_000).into(),
            price: self.random.below(10).into(),
            freezing: self.random.one_in(6),
        };
        CacheCosts {
            epochs,
            budget: Some(budget),
            at: None,
        }
    }

    fn wanted(&mut self, slots: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut wanted = slots.clone();
        wanted.retain(|_| !self.random.one_in(3));
        wanted
    }

    fn chosen(&self, tree: Tree, wanted: &BTreeSet<u32>, cache: &CacheCosts) -> u128 {
        let config = Config {
            cache: cache.clone(),
            ..Config::default()
        };
        // The arena is rebuilt by the search, so it is given a copy.
        let searched = search(self.arena.clone(), &self.lowered(tree, wanted), &config).unwrap();
        searched.report.chosen
    }

    fn lowered(&self, tree: Tree, wanted: &BTreeSet<u32>) -> Lowered {
        let outputs = wanted
            .iter()
            .map(|&slot| (self.name(slot).to_owned(), self.slots[slot as usize]));
        Lowered {
            tree,
            outputs: outputs.collect(),
        }
    }
}

/// Rows at a point of a plan: how many, and the bytes of their slots.
#[derive(Debug, Clone)]
struct Rows {
    log: i32,
    /// The rows that epochs take theirs from.
    pool: i32,
    bytes: Vec<(u32, u64)>,
    draws: bool,
}

fn number(log: i32) -> u128 {
    Log2(log).number()
}

fn bytes(b: u64) -> u128 {
    Log2::of(b).number()
}

impl Rows {
    fn of(source: &Source) -> Self {
        Self {
            log: Log2::of(source.rows).0,
            pool: Log2::of(source.rows).0,
            bytes: source.slots.clone(),
            draws: false,
        }
    }

    /// What a step makes of these rows.
    fn after(mut self, step: &Step) -> Self {
        if let Some((slot, width)) = step.writes {
            self.bytes.retain(|&(s, _)| s != slot);
            self.bytes.push((slot, width));
        }
        self.log += step.kept;
        self.pool += step.kept;
        self.draws |= step.draws;
        if let Some(take) = step.take {
            self.log = self.log.min(Log2::of(take).0);
            if !step.shuffled {
                self.pool = self.pool.min(Log2::of(take).0);
            }
        }
        self
    }

    fn live(&self, needed: &BTreeSet<u32>) -> u128 {
        let live = self.bytes.iter().filter(|(slot, _)| needed.contains(slot));
        live.map(|&(_, b)| bytes(b)).sum()
    }
}

/// The least totals found: what an epoch costs without a cache, and all epochs with one.
#[derive(Debug, Clone, Copy)]
struct Least {
    each: u128,
    cached: u128,
}

impl Least {
    const NONE: Self = Self {
        each: u128::MAX,
        cached: u128::MAX,
    };
}

/// What stands below a chain of steps: its rows, and what it costs where these slots are needed of it.
struct Base<'a> {
    rows: &'a dyn Fn(&BTreeSet<u32>) -> Rows,
    cost: &'a dyn Fn(&BTreeSet<u32>) -> Least,
}

/// The least cost over every legal order of `steps`, with every cache point in or below them.
fn enumerate(steps: &[Step], base: &Base<'_>, wanted: &BTreeSet<u32>, cache: &CacheCosts) -> Least {
    let mut order = Vec::new();
    let mut least = Least::NONE;
    orders(
        &mut order,
        &mut vec![false; steps.len()],
        steps,
        &mut |order| {
            let found = evaluate(order, base, wanted, cache);
            least.each = least.each.min(found.each);
            least.cached = least.cached.min(found.cached);
        },
    );
    least
}

fn orders<'a>(
    order: &mut Vec<&'a Step>,
    used: &mut Vec<bool>,
    steps: &'a [Step],
    visit: &mut impl FnMut(&[&'a Step]),
) {
    if order.len() == steps.len() {
        visit(order);
        return;
    }
    for next in 0..steps.len() {
        let free = |below: usize| used[below] || steps[next].passes(&steps[below]);
        if used[next] || !(0..next).all(free) {
            continue;
        }
        used[next] = true;
        order.push(&steps[next]);
        orders(order, used, steps, visit);
        order.pop();
        used[next] = false;
    }
}

fn evaluate(order: &[&Step], base: &Base<'_>, wanted: &BTreeSet<u32>, cache: &CacheCosts) -> Least {
    // What is needed above each place, from the top; functions that nobody needs are not computed.
    let mut needed = vec![wanted.clone()];
    let mut computed = Vec::new();
    for step in order.iter().rev() {
        let above = &needed[needed.len() - 1];
        let unused = step.writes.is_some_and(|(slot, _)| !above.contains(&slot));
        let mut below = above.clone();
        if unused && !step.pinned {
            needed.push(below);
            computed.push(false);
            continue;
        }
        if let Some((slot, _)) = step.writes {
            below.remove(&slot);
        }
        below.extend(&step.reads);
        needed.push(below);
        computed.push(true);
    }
    needed.reverse();
    computed.reverse();

    let prices = Coefficients::declared();
    let epochs = u128::from(cache.epochs);
    let under = (base.cost)(&needed[0]);
    let mut each = under.each;
    let mut rows = (base.rows)(&needed[0]);
    let mut cached = under.cached;
    // What each legal cache point costs below itself, and to keep.
    let mut points = Vec::new();
    let point = |rows: &Rows, needed: &BTreeSet<u32>, below: u128| {
        kept_at(rows, needed, below, cache).map(|total| (below, total))
    };
    points.extend(point(&rows, &needed[0], each));
    for (place, step) in order.iter().enumerate() {
        if !computed[place] {
            continue;
        }
        let (before, above) = (rows.clone(), &needed[place + 1]);
        rows = rows.after(step);
        let mut own = 1;
        match step.take {
            Some(_) => own += number(rows.log),
            None => {
                let read = before.live(&step.reads);
                let written = step
                    .writes
                    .map_or(0, |(slot, b)| match above.contains(&slot) {
                        true => bytes(b),
                        false => 0,
                    });
                let compute = step.cost[0] + read * step.cost[1] + written * step.cost[2];
                own += number(before.log) * compute;
                if step.is_filter() {
                    own += number(rows.log)
                        * (rows.live(above) * u128::from(prices.copy) + u128::from(prices.row));
                }
            }
        }
        each = each.saturating_add(own);
        cached = cached.saturating_add(own * epochs);
        points.extend(point(&rows, above, each));
    }
    let with = points.iter().map(|&(below, total)| {
        let above = each - below;
        total.saturating_add(above.saturating_mul(epochs))
    });
    Least {
        each,
        cached: with.fold(cached, u128::min),
    }
}

/// What rows that are kept cost over all epochs, where computing those of one costs `once` and where
/// keeping them is legal.
fn kept_at(rows: &Rows, needed: &BTreeSet<u32>, once: u128, cache: &CacheCosts) -> Option<u128> {
    let budget = cache.budget?;
    let (each, live, epochs) = (
        number(rows.log),
        rows.live(needed),
        u128::from(cache.epochs),
    );
    let stored = number(rows.pool).min(each * epochs);
    if rows.draws && !budget.freezing || stored * live > budget.bytes {
        return None;
    }
    let computed = once * stored / each;
    let read = (each * epochs - stored) * (live * budget.read + budget.row);
    Some(computed + stored * live * (budget.write + budget.price) + read)
}

fn scan_cost(source: &Source, needed: &BTreeSet<u32>) -> Least {
    let price = Coefficients::declared().scan(None);
    let (row, byte) = (
        u128::from(price.ps_per_row),
        u128::from(price.ps_per_byte_in),
    );
    let rows = Rows::of(source);
    let each = number(rows.log) * (rows.live(needed) * byte + row) + 1;
    Least {
        each,
        cached: u128::MAX,
    }
}

/// The least of all plans over all epochs.
fn best(least: Least, cache: &CacheCosts) -> u128 {
    least
        .cached
        .min(least.each.saturating_mul(cache.epochs.into()))
}

fn tree(source: &Source, steps: &[Step]) -> Tree {
    let scan = Tree::Scan(source.scan);
    steps.iter().fold(scan, |tree, step| tree.then(step.param))
}

fn slots_of(source: &Source) -> BTreeSet<u32> {
    source.slots.iter().map(|&(slot, _)| slot).collect()
}

/// Rows after steps, whatever their order, of which `needed` is needed.
fn after(steps: &[Step], rows: Rows, needed: &BTreeSet<u32>) -> Rows {
    let mut needed = needed.clone();
    let mut computed = Vec::new();
    for step in steps.iter().rev() {
        if let Some((slot, _)) = step.writes {
            if !needed.contains(&slot) && !step.pinned {
                continue;
            }
            needed.remove(&slot);
        }
        needed.extend(&step.reads);
        computed.push(step);
    }
    computed.into_iter().rev().fold(rows, Rows::after)
}

/// Cases of each kind: the environment variable `FOREBAY_ORACLE_CASES`, else 1000.
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
    // Both answers occur.
    assert!(cached > 0 && cached < cases());
}

/// Proofs change nothing, and every step of them leads on.
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
        // Whether a rule or congruence finds two classes equal first is all that proofs change.
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

/// The cost to which the steps lead, each from where the one before it ended.
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
        let cat = Tree::Cat(Box::new(arms));
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
        // Estimates of a union are the lower ones of its forms, so the last step may be a little off.
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
fn a_zip_is_ordered_and_cached_as_cheaply_as_any() {
    for seed in 0..cases() {
        let mut world = World::new(seed);
        let sources = [world.source(&[0, 1]), world.source(&[2, 3])];
        let mut slots = sources.each_ref().map(slots_of);
        let arms = slots.each_mut().map(|slots| {
            // An arm writes its own slots only.
            let n = world.random.below(4);
            let mut steps = world.steps(slots, n);
            let own = sources[0].slots[0].0 == *slots.iter().next().unwrap_or(&0);
            let mine = |slot: u32| (slot < 2 || slot == 4 || slot == 5) == own;
            steps.retain(|step| step.writes.is_none_or(|(slot, _)| mine(slot)));
            slots.retain(|&slot| mine(slot));
            steps.retain(|step| step.reads.is_subset(slots));
            steps
        });
        let made = |source: &Source, steps: &[Step]| -> BTreeSet<u32> {
            let writes = steps.iter().filter_map(|s| s.writes.map(|(slot, _)| slot));
            slots_of(source).into_iter().chain(writes).collect()
        };
        let of_arms = [made(&sources[0], &arms[0]), made(&sources[1], &arms[1])];
        if !sound(&slots_of(&sources[0]), &arms[0]) || !sound(&slots_of(&sources[1]), &arms[1]) {
            continue;
        }
        let mut all = &of_arms[0] | &of_arms[1];
        let n = world.random.below(4);
        let above = world.steps(&mut all, n);
        let (wanted, cache) = (world.wanted(&all), world.cache());
        let zipped = |needed: &BTreeSet<u32>| {
            let arm = |i: usize| {
                let needed = needed & &of_arms[i];
                after(&arms[i], Rows::of(&sources[i]), &needed)
            };
            let rows = [arm(0), arm(1)];
            Rows {
                log: rows[0].log.min(rows[1].log),
                pool: rows[0].pool.min(rows[1].pool),
                bytes: rows.iter().flat_map(|r| r.bytes.clone()).collect(),
                draws: rows.iter().any(|r| r.draws),
            }
        };
        let cost = |needed: &BTreeSet<u32>| {
            let prices = Coefficients::declared();
            let arm = |i: usize| {
                let base = Base {
                    rows: &|_| Rows::of(&sources[i]),
                    cost: &|needed| scan_cost(&sources[i], needed),
                };
                enumerate(&arms[i], &base, &(needed & &of_arms[i]), &cache)
            };
            let zipped = zipped(needed);
            let moved = number(zipped.log)
                * (zipped.live(needed) * u128::from(prices.copy) + u128::from(prices.row))
                + 1;
            both(arm(0), arm(1), moved, &cache)
        };
        let base = Base {
            rows: &zipped,
            cost: &cost,
        };
        let least = enumerate(&above, &base, &wanted, &cache);
        let second = world.set(&of_arms[1]);
        let [a, b] = [tree(&sources[0], &arms[0]), tree(&sources[1], &arms[1])];
        let zip = Tree::Zip(Box::new([a, b]), second);
        let whole = above.iter().fold(zip, |tree, step| tree.then(step.param));
        let found = world.chosen(whole, &wanted, &cache);
        assert_eq!(
            found,
            best(least, &cache),
            "seed {seed}: {arms:#?} {above:#?}"
        );
    }
}

/// Whether every step's slots are there when it comes.
fn sound(slots: &BTreeSet<u32>, steps: &[Step]) -> bool {
    let mut slots = slots.clone();
    steps.iter().all(|step| {
        let there = step.reads.is_subset(&slots);
        slots.extend(step.writes.map(|(slot, _)| slot));
        there
    })
}

/// Two inputs and an operator of its own cost over both; one cache in either of them.
fn both(a: Least, b: Least, own: u128, cache: &CacheCosts) -> Least {
    let epochs = u128::from(cache.epochs);
    let with = |cached: u128, other: u128| cached.saturating_add(other.saturating_mul(epochs));
    Least {
        each: a.each.saturating_add(b.each).saturating_add(own),
        cached: with(a.cached, b.each)
            .min(with(b.cached, a.each))
            .saturating_add(own * epochs),
    }
}

#[test]
fn a_union_is_ordered_and_cached_nearly_as_cheaply_as_any() {
    for seed in 0..cases() {
        let mut world = World::new(seed);
        let first = world.source(&[0, 1]);
        let rows = 1 + world.random.below(100_000);
        let sources = [first.clone(), world.source_of(rows, first.slots.clone())];
        let arms = [0, 1].map(|_| {
            // Filters only, so that both arms have the same columns.
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
        // Every choice of steps that go into both arms.
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
                let prices = Coefficients::declared();
                let arm = |i: usize| {
                    let base = Base {
                        rows: &|_| Rows::of(&sources[i]),
                        cost: &|needed| scan_cost(&sources[i], needed),
                    };
                    enumerate(&chains[i], &base, needed, &cache)
                };
                let united = united(needed);
                let moved = number(united.log)
                    * (united.live(needed) * u128::from(prices.copy) + u128::from(prices.row))
                    + 1;
                both(arm(0), arm(1), moved, &cache)
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
        let cat = Tree::Cat(Box::new([a, b]));
        let whole = above.iter().fold(cat, |tree, step| tree.then(step.param));
        let found = world.chosen(whole, &wanted, &cache) as f64;
        let ratio = found / best(least, &cache) as f64;
        assert!(
            (0.995..1.005).contains(&ratio),
            "seed {seed}: {ratio}: {arms:#?} {above:#?}"
        );
    }
}

/// Twelve operators that all commute have 479,001,600 orders, but only 4,096 sets of operators that can
/// stand below a place; what an operator costs depends on that set alone.
#[test]
fn twelve_commuting_operators_are_ordered_at_the_optimum() {
    for seed in 0..6 {
        let mut world = World::new(seed);
        let source = world.source(&[0, 1, 2]);
        let steps: Vec<Step> = (0..12)
            .map(|number| {
                // Five write a slot of their own, the others are filters; all read stored slots.
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
