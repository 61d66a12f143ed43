//! Checks whether rows may be cached, and computes the cost of caching.

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

/// Costs of caching, in picoseconds of one core. The cost of reading and writing is wall time times
/// the number of cores, since all cores could compute meanwhile. The user sets the price of disk
/// space.
#[derive(Debug, Clone)]
pub struct CacheCosts {
    /// Number of epochs over which the cost of a plan is summed.
    pub epochs: u64,
    /// Capacity and prices of the cache; `None` if no cache is configured.
    pub budget: Option<CacheBudget>,
    /// The name in CACHE AT: a function, or an output column whose last operator's rows are cached.
    /// `None` if the user names no operator.
    pub at: Option<String>,
    /// A lookup of the rows that the cache holds already; `None` if the cache was not inspected.
    pub stored: Option<Arc<dyn CacheContents>>,
}

/// Capacity and prices of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheBudget {
    /// Maximum number of bytes in the cache.
    pub bytes: u128,
    /// Picoseconds of one core to write a byte to the cache, including compression.
    pub write: u128,
    /// Picoseconds of one core to read a byte from the cache, including decompression.
    pub read: u128,
    /// Picoseconds of one core to find a row in the cache.
    pub row: u128,
    /// Price of keeping a byte in the cache, in picoseconds of one core, paid once for all epochs.
    pub price: u128,
    /// True if rows with random draws may be cached, so that all epochs have the draws of the
    /// first: `FREEZING RANDOMNESS`.
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

/// A reason why the rows at a cache point must not be cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheRefusal {
    /// No cache is configured: no `cache_dir`, or `CACHE OFF`.
    Off,
    /// The operator with this text, at or below the cache point, draws random numbers. With a
    /// cache, every epoch would have the same draws.
    Random(String),
    /// The operator with this text, at or below the cache point, calls a function that is not
    /// declared deterministic.
    Volatile(String),
    /// The operator with this text, at or below the cache point, is a lookup, an unnest or a batch,
    /// whose rows are not identified by the position of one stored row.
    Unaddressed(String),
    /// The cache is too small. The fields are the number of bytes that the rows take, and the
    /// cache's capacity in bytes.
    TooLarge(u128, u128),
}

impl std::fmt::Display for CacheRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => f.write_str("no cache is configured"),
            Self::Random(op) => write!(f, "it would freeze the draws of {op}"),
            Self::Volatile(op) => write!(f, "{op} is not declared deterministic"),
            Self::Unaddressed(op) => write!(
                f,
                "its rows cannot be identified in a cache, because of {op}"
            ),
            Self::TooLarge(needed, room) => {
                write!(
                    f,
                    "it takes {needed} bytes, but the cache holds at most {room} bytes"
                )
            }
        }
    }
}

impl CacheCosts {
    /// True if a cache is configured.
    pub fn possible(&self) -> bool {
        self.budget.is_some()
    }

    /// Checks that rows with the facts in `rows` may be cached. Returns the reason if not.
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

    /// The number of distinct rows that all epochs together read.
    fn distinct(&self, rows: &PlanFact) -> u128 {
        let all = rows.rows.number().saturating_mul(self.epochs.into());
        rows.pool.number().min(all)
    }

    /// The number of bytes that these rows take in the cache after all epochs.
    pub fn stored_bytes(&self, rows: &PlanFact) -> u128 {
        self.distinct(rows).saturating_mul(rows.live_bytes())
    }

    /// Cost of all epochs if the rows with the facts `rows` are cached. `once` is the cost of
    /// computing one epoch's rows, and `stored` is the number of rows that the cache holds already.
    /// Each other distinct row is computed and written once, and every further use of a row is a
    /// read from the cache.
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

/// Returns the operators to which the name `step` in CACHE AT refers: all operators that call the
/// function `step`, and the last operator that writes the output column `step`.
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

/// Pins the operator `step` and every operator that draws. A cache after `step` freezes the draws
/// of the operators below `step`. Were these operators not pinned, prices would decide which draws
/// are frozen, and so which values the stream has.
///
/// # Errors
/// Fails if the plan has a union or a mix, or several operators to which `step` refers.
pub(super) fn fix_draws(arena: &mut Arena, lowered: &mut Lowered, step: &str) -> Result<()> {
    let kept = steps(arena, lowered, step);
    let (mut places, mut joined) = (0, false);
    lowered.tree.visit(&mut |tree| match tree {
        // Equal calls are one operator with one id, but each occurrence in the tree counts.
        OperatorTree::Op(param, _) => places += usize::from(kept.contains(param)),
        OperatorTree::Cat(_) | OperatorTree::Mix(_) => joined = true,
        OperatorTree::Scan(_) | OperatorTree::Cache(_) => {}
    });
    if joined {
        return plan_err!(
            "CACHE AT {step} FREEZING RANDOMNESS: the rows come from several tables, but a cache keeps the draws \
             of one table; cache each table's rows in a separate pipeline"
        );
    }
    if places > 1 {
        return plan_err!(
            "CACHE AT {step} FREEZING RANDOMNESS: the pipeline calls {step} {places} times, and a cache after \
             each would keep other draws; make the result of the call to cache an output column with another \
             name, and write that name after CACHE AT"
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

/// Returns the error that the rows of the operator `step`, which the user named in CACHE AT, cannot
/// be cached.
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
        "CACHE AT {step}: {why}; cache at an earlier step, or, to keep the draws of the first epoch for all epochs, \
         write CACHE AT {step} FREEZING RANDOMNESS"
    )
}
