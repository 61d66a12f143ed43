//! Enumerates every legal order of steps with every cache point, and finds the least cost.

use std::collections::BTreeSet;

use super::world::{Source, Step};
use crate::optimizer::cache::CacheCosts;
use crate::optimizer::coefficients::Coefficients;
use crate::optimizer::log2::Log2;

/// Facts about the rows at a point of a plan: the number of rows, and the bytes of each slot.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    pub(super) log: i32,
    /// Number of distinct rows that all epochs together may read, as a base-2 logarithm in 1024ths.
    pub(super) pool: i32,
    pub(super) bytes: Vec<(u32, u64)>,
    pub(super) draws: bool,
}

pub(super) fn number(log: i32) -> u128 {
    Log2(log).number()
}

pub(super) fn bytes(b: u64) -> u128 {
    Log2::of(b).number()
}

impl Rows {
    pub(super) fn of(source: &Source) -> Self {
        Self {
            log: Log2::of(source.rows).0,
            pool: Log2::of(source.rows).0,
            bytes: source.slots.clone(),
            draws: false,
        }
    }

    /// Returns the facts about the rows after `step` is applied to these rows.
    pub(super) fn after(mut self, step: &Step) -> Self {
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

    pub(super) fn live(&self, needed: &BTreeSet<u32>) -> u128 {
        let live = self.bytes.iter().filter(|(slot, _)| needed.contains(slot));
        live.map(|&(_, b)| bytes(b)).sum()
    }
}

/// The least costs found: `each` of one epoch without a cache, and `cached` of all epochs with a
/// cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct Least {
    pub(super) each: u128,
    pub(super) cached: u128,
}

impl Least {
    pub(super) const NONE: Self = Self {
        each: u128::MAX,
        cached: u128::MAX,
    };
}

/// The plan below a chain of steps. Both functions take the slots that the steps need from this
/// plan. `rows` returns the facts about its rows, and `cost` the least cost.
pub(super) struct Base<'a> {
    pub(super) rows: &'a dyn Fn(&BTreeSet<u32>) -> Rows,
    pub(super) cost: &'a dyn Fn(&BTreeSet<u32>) -> Least,
}

/// Finds the least cost over every legal order of `steps` above `base`, with every cache point
/// above or below each of the steps.
pub(super) fn enumerate(
    steps: &[Step],
    base: &Base<'_>,
    wanted: &BTreeSet<u32>,
    cache: &CacheCosts,
) -> Least {
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
    // The slots that the steps above each step need, from the topmost step down. A function whose
    // slot is not needed is left out.
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
    // For each legal cache point, two costs: of one epoch of everything below the point, and of all
    // epochs of caching the point's rows.
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
                let written =
                    step.writes.map_or(
                        0,
                        |(slot, b)| if above.contains(&slot) { bytes(b) } else { 0 },
                    );
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

/// Cost of all epochs of rows that are cached, if computing the rows of one epoch costs `once`.
/// `None` if these rows must not be cached.
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

pub(super) fn scan_cost(source: &Source, needed: &BTreeSet<u32>) -> Least {
    let price = Coefficients::declared().scan(None).stored;
    let (row, byte) = (
        u128::from(price.ps_per_row),
        u128::from(price.ps_per_value_in),
    );
    let rows = Rows::of(source);
    let each = number(rows.log) * (rows.live(needed) * byte + row) + 1;
    Least {
        each,
        cached: u128::MAX,
    }
}

/// The lower of the costs of all epochs with and without a cache.
pub(super) fn best(least: Least, cache: &CacheCosts) -> u128 {
    least
        .cached
        .min(least.each.saturating_mul(cache.epochs.into()))
}

/// Facts about the rows after `steps` are applied to `rows` in any order, restricted to the slots
/// in `needed`.
pub(super) fn after(steps: &[Step], rows: Rows, needed: &BTreeSet<u32>) -> Rows {
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

/// Returns the least costs of an operator over two inputs, whose least costs are `a` and `b`. The
/// operator itself costs `own` per epoch. Either input, but not both, may contain the cache point.
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

/// The least cost of a union of two plans, each of which is a source with steps above the source.
/// For each plan, `inputs` has the source, the steps, and the slots that are needed. The union
/// copies all rows.
pub(super) fn over_two(
    inputs: [(&Source, &[Step], BTreeSet<u32>); 2],
    rows: &Rows,
    needed: &BTreeSet<u32>,
    cache: &CacheCosts,
) -> Least {
    let prices = Coefficients::declared();
    let [a, b] = inputs.map(|(source, steps, needed)| {
        let base = Base {
            rows: &|_| Rows::of(source),
            cost: &|needed| scan_cost(source, needed),
        };
        enumerate(steps, &base, &needed, cache)
    });
    let row = rows.live(needed) * u128::from(prices.copy) + u128::from(prices.row);
    both(a, b, number(rows.log) * row + 1, cache)
}
