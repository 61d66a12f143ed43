//! Generates random plans, both as trees for the search and as steps for the enumeration.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::logical_plan::builder::LogicalTableSource;
use datafusion::logical_expr::{Expr, lit};
use forebay_udfs::facts::Algebra;

use crate::optimizer::Config;
use crate::optimizer::arena::{Arena, ScanSpec};
use crate::optimizer::cache::{CacheBudget, CacheCosts};
use crate::optimizer::coefficients::{FunctionCost, OpCost};
use crate::optimizer::estimate::selectivity;
use crate::optimizer::ids::{ParamId, ScanId};
use crate::optimizer::lower::Lowered;
use crate::optimizer::search::search;
use crate::optimizer::slots::{Slot, SlotSet};
use crate::optimizer::spec::{OpKind, OpSpec};
use crate::optimizer::tree::OperatorTree;
use crate::rows::slot as column;

/// The pseudorandom generator SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, figure 16).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// An operator in the form that the enumeration uses.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) param: ParamId,
    pub(super) reads: BTreeSet<u32>,
    /// The number of the slot that the step writes, and the slot's bytes per row; `None` for a
    /// filter or a take.
    pub(super) writes: Option<(u32, u64)>,
    /// The fraction of rows that the step keeps, as a base-2 logarithm in 1024ths.
    pub(super) kept: i32,
    /// Maximum number of rows that a take keeps; `None` if the step is not a take.
    pub(super) take: Option<u64>,
    pub(super) shuffled: bool,
    pub(super) fallible: bool,
    pub(super) draws: bool,
    pub(super) pinned: bool,
    pub(super) cost: [u128; 3],
}

impl Step {
    pub(super) fn is_filter(&self) -> bool {
        self.writes.is_none() && self.take.is_none()
    }

    /// True if this step, which is directly above the step `below`, may be moved below that step.
    pub(super) fn passes(&self, below: &Self) -> bool {
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
            // One of the two steps is a filter or a take, and the other is a function.
            (None, Some(_)) => self.take.is_some() || !reads(self, below),
            (Some(_), None) => below.take.is_some() || !reads(below, self),
        }
    }
}

/// A source: its scan, its number of rows, and pairs of a slot's number and its bytes per row.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) scan: ScanId,
    pub(super) rows: u64,
    pub(super) slots: Vec<(u32, u64)>,
}

pub(super) struct World {
    pub(super) random: Random,
    pub(super) arena: Arena,
    pub(super) slots: Vec<Slot>,
    pub(super) scans: u32,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut arena = Arena::default();
        let slots = (0..8).map(|i| arena.slot(&format!("s{i}"))).collect();
        Self {
            random: Random(seed),
            arena,
            slots,
            scans: 0,
        }
    }

    pub(super) fn name(&self, slot: u32) -> &str {
        self.arena.name(self.slots[slot as usize])
    }

    pub(super) fn set<'a>(&self, slots: impl IntoIterator<Item = &'a u32>) -> SlotSet {
        slots.into_iter().map(|&s| self.slots[s as usize]).collect()
    }

    pub(super) fn source(&mut self, slots: &[u32]) -> Source {
        let rows = 1 + self.random.below(100_000);
        let slots: Vec<(u32, u64)> = slots
            .iter()
            .map(|&slot| (slot, 1 + self.random.below(100_000)))
            .collect();
        self.source_of(rows, slots)
    }

    pub(super) fn source_of(&mut self, rows: u64, slots: Vec<(u32, u64)>) -> Source {
        let fields = slots.iter().map(|&(slot, bytes)| {
            let data_type = DataType::FixedSizeBinary(bytes as i32);
            Field::new(self.name(slot), data_type, false)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let columns = slots.iter().enumerate();
        let columns = columns.map(|(i, &(slot, _))| (i, self.slots[slot as usize]));
        let columns = columns.collect();
        let cost = self.arena.prices.scan(None).each(None, 1, None);
        let scan = self.arena.add_scan(ScanSpec {
            occurrence: self.scans,
            name: "t".to_owned(),
            source: Arc::new(LogicalTableSource::new(schema)),
            format: None,
            columns,
            rows: Some(rows),
            row_bytes: None,
            cost,
            filters: Vec::new(),
            kept_percent: 100,
        });
        self.scans += 1;
        Source { scan, rows, slots }
    }

    /// Generates the step with the number `number`, which reads some of `slots`. If the step writes
    /// a slot, that slot is added to `slots`.
    pub(super) fn step(&mut self, slots: &mut BTreeSet<u32>, number: usize) -> Step {
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
                let slot = if self.random.one_in(2) {
                    *reads.iter().next().unwrap_or(&0)
                } else {
                    self.random.below(8) as u32
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
            cost: FunctionCost::from(OpCost {
                ps_per_row: cost[0],
                ps_per_value_in: cost[1],
                ps_per_value_out: cost[2],
            }),
            percent: 100,
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

    pub(super) fn take(&mut self) -> Step {
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

    pub(super) fn steps(&mut self, slots: &mut BTreeSet<u32>, n: u64) -> Vec<Step> {
        // At most one step is a take, since two takes would be merged.
        let take = self.random.below(12);
        (0..n)
            .map(|number| {
                if number == take {
                    self.take()
                } else {
                    self.step(slots, number as usize)
                }
            })
            .collect()
    }

    pub(super) fn cache(&mut self) -> CacheCosts {
        let epochs = [1, 2, 10, 90][self.random.below(4) as usize];
        let room = [0, 1 << 30, 1 << 34, u128::MAX][self.random.below(4) as usize];
        let budget = CacheBudget {
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
            ..CacheCosts::default()
        }
    }

    pub(super) fn wanted(&mut self, slots: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut wanted = slots.clone();
        wanted.retain(|_| !self.random.one_in(3));
        wanted
    }

    pub(super) fn chosen(
        &self,
        tree: OperatorTree,
        wanted: &BTreeSet<u32>,
        cache: &CacheCosts,
    ) -> u128 {
        let config = Config {
            cache: cache.clone(),
            ..Config::default()
        };
        // The search takes ownership of an arena, so a copy is passed.
        let searched = search(self.arena.clone(), &self.lowered(tree, wanted), &config).unwrap();
        searched.report.chosen
    }

    pub(super) fn lowered(&self, tree: OperatorTree, wanted: &BTreeSet<u32>) -> Lowered {
        let outputs = wanted
            .iter()
            .map(|&slot| (self.name(slot).to_owned(), self.slots[slot as usize]));
        Lowered {
            tree,
            outputs: outputs.collect(),
        }
    }
}

pub(super) fn tree(source: &Source, steps: &[Step]) -> OperatorTree {
    let scan = OperatorTree::Scan(source.scan);
    steps.iter().fold(scan, |tree, step| tree.then(step.param))
}

pub(super) fn slots_of(source: &Source) -> BTreeSet<u32> {
    source.slots.iter().map(|&(slot, _)| slot).collect()
}
