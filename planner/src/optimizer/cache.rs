//! Legality and cost of caching rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, plan_datafusion_err, plan_err};

use super::arena::Arena;
use super::cost::Cost;
use super::graph::{PlanGraph, param_of, plan_fact};
use super::ids::ParamId;
use super::lang::Node;
use super::lower::Lowered;
use super::plan_fact::PlanFact;
use super::stored::CacheContents;
use super::tree::OperatorTree;

/// Costs of caching, in picoseconds. Reading and writing cost wall time times the number of cores
/// that could compute meanwhile, since computing is priced per core. The price of disk space is the
/// user's.
#[derive(Debug, Clone)]
pub struct CacheCosts {
    /// Number of epochs that a plan is priced over.
    pub epochs: u64,
    /// Capacity and speed of the cache; `None` if no cache is configured.
    pub budget: Option<CacheBudget>,
    /// The operator to cache, if the user names it: by its function, or by the output column that
    /// it completes.
    pub at: Option<String>,
    /// A lookup of the rows that are cached already, if the cache was inspected.
    pub stored: Option<Arc<dyn CacheContents>>,
}

/// Capacity and prices of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheBudget {
    /// Capacity of the cache in bytes; more must not be stored.
    pub bytes: u128,
    /// Picoseconds to write a byte to the cache, including compression.
    pub write: u128,
    /// Picoseconds to read a byte from the cache, including decompression.
    pub read: u128,
    /// Picoseconds to find a row in the cache.
    pub row: u128,
    /// Price of keeping a byte, in picoseconds, paid once for all epochs.
    pub price: u128,
    /// True if the draws of the first epoch may be kept for all epochs: `FREEZING RANDOMNESS`.
    pub freezing: bool,
}

impl Default for CacheCosts {
    fn default() -> Self {
        Self {
            epochs: 1,
            budget: None,
            at: None,
            stored: None,
        }
    }
}

/// A reason why rows must not be cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheRefusal {
    /// No cache is configured: no `cache_dir`, or `CACHE OFF`.
    Off,
    /// An operator at or below the cache point, given by its text, draws: every epoch would see the
    /// same draws.
    Random(String),
    /// An operator at or below the cache point, given by its text, calls a function that is not
    /// deterministic.
    Volatile(String),
    /// An operator at or below the cache point, given by its text, makes rows that are not
    /// identified by their place in a file.
    Unaddressed(String),
    /// The cache is too small: the bytes needed, and its capacity.
    TooLarge(u128, u128),
}

impl std::fmt::Display for CacheRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => f.write_str("no cache is configured"),
            Self::Random(op) => write!(f, "it would freeze the draws of {op}"),
            Self::Volatile(op) => write!(f, "{op} is not declared deterministic"),
            Self::Unaddressed(op) => write!(f, "its rows have no address: {op}"),
            Self::TooLarge(needed, room) => {
                write!(f, "it takes {needed} bytes, and there is room for {room}")
            }
        }
    }
}

impl CacheCosts {
    /// True if a cache is configured.
    pub fn possible(&self) -> bool {
        self.budget.is_some()
    }

    /// Checks that rows with these facts may be cached.
    pub fn refusal(&self, arena: &Arena, rows: &PlanFact) -> Result<(), CacheRefusal> {
        let budget = self.budget.ok_or(CacheRefusal::Off)?;
        let text = |param| arena.spec(param).text.clone();
        if let Some(param) = rows.unaddressed {
            return Err(CacheRefusal::Unaddressed(text(param)));
        }
        if let (Some(param), false) = (rows.draws, budget.freezing) {
            return Err(if arena.spec(param).is_volatile() {
                CacheRefusal::Volatile(text(param))
            } else {
                CacheRefusal::Random(text(param))
            });
        }
        let bytes = self.stored_bytes(rows);
        if bytes > budget.bytes {
            return Err(CacheRefusal::TooLarge(bytes, budget.bytes));
        }
        Ok(())
    }

    /// The number of distinct rows that all epochs read together.
    fn distinct(&self, rows: &PlanFact) -> u128 {
        let all = rows.rows.number().saturating_mul(self.epochs.into());
        rows.pool.number().min(all)
    }

    /// The number of bytes in the cache after all epochs.
    pub fn stored_bytes(&self, rows: &PlanFact) -> u128 {
        self.distinct(rows).saturating_mul(rows.live_bytes())
    }

    /// Cost of all epochs, given the cost `once` of computing one epoch's rows and the number of
    /// rows that are `stored` already. A distinct row that is not stored is computed and written
    /// once; every other read takes the row from the cache.
    pub fn total(&self, once: Cost, rows: &PlanFact, stored: u64) -> Cost {
        let Some(budget) = self.budget else {
            return Cost::MAX;
        };
        let (live, each) = (rows.live_bytes(), rows.rows.number());
        let distinct = self.distinct(rows).saturating_sub(stored.into());
        let again = each
            .saturating_mul(self.epochs.into())
            .saturating_sub(distinct);
        let compute = once.saturating_mul(distinct) / each.max(1);
        let write = distinct
            .saturating_mul(live)
            .saturating_mul(budget.write + budget.price);
        let read = live.saturating_mul(budget.read).saturating_add(budget.row);
        compute
            .saturating_add(write)
            .saturating_add(again.saturating_mul(read))
    }
}

/// Returns the operators that the name in CACHE AT means: all calls of the function `step`, and the
/// last operator that writes the output column `step`.
pub(crate) fn steps(arena: &Arena, lowered: &Lowered, step: &str) -> BTreeSet<ParamId> {
    let column = lowered.outputs.iter().find(|(name, _)| name == step);
    let mut found = BTreeSet::new();
    let mut ready = None;
    lowered.tree.visit(&mut |tree| {
        let OperatorTree::Op(param, _) = tree else {
            return;
        };
        let spec = arena.spec(*param);
        let calls = |param| arena.spec(param).function() == Some(step);
        if arena.each(*param).into_iter().any(calls) {
            found.insert(*param);
        }
        if column.is_some_and(|&(_, slot)| spec.writes.contains(slot)) {
            ready = Some(*param);
        }
    });
    found.extend(ready);
    found
}

/// Fixes the draws that a cache after the operator `step` keeps: the draws of the operators below
/// it in the written plan. The operator `step` and every operator that draws are pinned, or the
/// stream would depend on prices.
///
/// # Errors
/// Fails if `step` is not exactly one operator in one place of the plan.
pub(super) fn fix_draws(arena: &mut Arena, lowered: &mut Lowered, step: &str) -> Result<()> {
    let kept = steps(arena, lowered, step);
    let (mut places, mut joined) = (0, false);
    lowered.tree.visit(&mut |tree| match tree {
        // Equal calls are one operator in several places.
        OperatorTree::Op(param, _) => places += usize::from(kept.contains(param)),
        OperatorTree::Cat(_) | OperatorTree::Mix(_) => joined = true,
        OperatorTree::Scan(_) | OperatorTree::Cache(_) => {}
    });
    if joined {
        return plan_err!(
            "CACHE AT {step} FREEZING RANDOMNESS: the rows come of several tables, and a cache keeps the draws of \
             one; cache each in a pipeline of its own"
        );
    }
    if places > 1 {
        return plan_err!(
            "CACHE AT {step} FREEZING RANDOMNESS: the pipeline calls it {places} times, and each keeps other \
             draws; give the call that is meant a column of its own, and name that"
        );
    }
    let fixed = |param| {
        if kept.contains(&param) || arena.spec(param).draws {
            arena.pin(param)
        } else {
            param
        }
    };
    lowered.tree = lowered.tree.with_operators(&mut { fixed });
    Ok(())
}

/// The error that rows cannot be cached after the operator that the user named in CACHE AT.
pub(super) fn refused_at(
    graph: &PlanGraph,
    lowered: &Lowered,
    costs: &CacheCosts,
    step: &str,
) -> DataFusionError {
    let arena = &graph.analysis.arena;
    let steps = steps(arena, lowered, step);
    if steps.is_empty() {
        return plan_datafusion_err!(
            "CACHE AT {step}: the pipeline calls no function and has no computed column of that name"
        );
    }
    let refusals = graph.classes().filter_map(|class| {
        let here = class.nodes.iter().any(|node| match node {
            Node::Op([param, _, _]) => param_of(graph, *param).is_some_and(|p| steps.contains(&p)),
            _ => false,
        });
        let fact = plan_fact(graph, class.id).filter(|_| here)?;
        costs.refusal(arena, fact).err()
    });
    let texts: BTreeSet<String> = refusals.map(|refusal| refusal.to_string()).collect();
    let why = texts.into_iter().next().unwrap_or_default();
    plan_datafusion_err!(
        "CACHE AT {step}: {why}; cache at an earlier step, or, to keep the draws of the first epoch for all, \
         write CACHE AT {step} FREEZING RANDOMNESS"
    )
}
