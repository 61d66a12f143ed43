//! Whether and where rows may be cached, and what that costs.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, plan_datafusion_err, plan_err};

use super::arena::{Arena, ParamId};
use super::cost::Cost;
use super::facts::PlanFact;
use super::graph::{param_of, plan_fact};
use super::lang::Node;
use super::lower::Lowered;
use super::stored::StoredRows;
use super::tree::Tree;
use super::{Config, Searched};

/// What caching costs, in picoseconds. Reading and writing are wall time times the cores that could
/// compute meanwhile, as the costs of computing are those of one core; the disk's price is what the user says.
#[derive(Debug, Clone)]
pub struct CacheCosts {
    /// Epochs over which a plan is priced.
    pub epochs: u64,
    /// Where a cache may be, if anywhere.
    pub budget: Option<Budget>,
    /// The one step that the user wants it at: the name of a function, or of an output column.
    pub at: Option<String>,
    /// The part that the cache holds already, where it was asked.
    pub stored: Option<Arc<dyn StoredRows>>,
}

/// A place for cached rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that there is room for.
    pub bytes: u128,
    /// Picoseconds to write a byte, compression included.
    pub write: u128,
    /// Picoseconds to read a byte, decompression included.
    pub read: u128,
    /// Picoseconds to find a row.
    pub row: u128,
    /// Picoseconds that keeping a byte is worth: the disk's price, paid once for all epochs.
    pub price: u128,
    /// Whether the draws of the first epoch may be kept for all: `FREEZING RANDOMNESS`.
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

/// Why rows must not be cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no place for them: no `cache_dir`, or `CACHE OFF`.
    Off,
    /// An operator below draws: every epoch would see the same draws.
    Random(String),
    /// An operator below calls a function that may have another value every time.
    Volatile(String),
    /// An operator below makes rows that have no address of their own.
    Unaddressed(String),
    /// There is too little room: bytes needed, and bytes there are.
    TooLarge(u128, u128),
}

impl std::fmt::Display for Refusal {
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
    /// Whether any point could be cached.
    pub fn possible(&self) -> bool {
        self.budget.is_some()
    }

    /// Whether rows of this kind may be cached; else why not.
    pub fn refusal(&self, arena: &Arena, rows: &PlanFact) -> Result<(), Refusal> {
        let budget = self.budget.ok_or(Refusal::Off)?;
        let text = |param| arena.spec(param).text.clone();
        if let Some(param) = rows.unaddressed {
            return Err(Refusal::Unaddressed(text(param)));
        }
        if let (Some(param), false) = (rows.draws, budget.freezing) {
            return Err(match arena.spec(param).is_volatile() {
                true => Refusal::Volatile(text(param)),
                false => Refusal::Random(text(param)),
            });
        }
        let bytes = self.stored_bytes(rows);
        if bytes > budget.bytes {
            return Err(Refusal::TooLarge(bytes, budget.bytes));
        }
        Ok(())
    }

    /// Rows of which all epochs together take theirs.
    fn distinct(&self, rows: &PlanFact) -> u128 {
        let all = rows.rows.number().saturating_mul(self.epochs.into());
        rows.pool.number().min(all)
    }

    /// Bytes that are kept in the end.
    pub fn stored_bytes(&self, rows: &PlanFact) -> u128 {
        self.distinct(rows).saturating_mul(rows.live_bytes())
    }

    /// All epochs, where computing the rows of one costs `once` and so many rows are `stored` already: each other
    /// row is computed and written the first time, and takes room. It is read whenever it comes again.
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

/// The operators that a user means by the name of a function or of an output column: all calls of the
/// function; of a column, the operator that has it ready.
pub fn steps(arena: &Arena, lowered: &Lowered, step: &str) -> BTreeSet<ParamId> {
    let column = lowered.outputs.iter().find(|(name, _)| name == step);
    let mut found = BTreeSet::new();
    let mut ready = None;
    lowered.tree.visit(&mut |tree| {
        let Tree::Op(param, _) = tree else { return };
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

/// Fixes which draws are kept at a step: those of the operators below it as they were written. Neither the
/// step nor an operator that draws is moved past another one, or the stream would follow the prices.
///
/// # Errors
/// The step is not one operator in one place.
pub(super) fn fix_draws(arena: &mut Arena, lowered: &mut Lowered, step: &str) -> Result<()> {
    let kept = steps(arena, lowered, step);
    let (mut places, mut joined) = (0, false);
    lowered.tree.visit(&mut |tree| match tree {
        // Equal calls are one operator in several places.
        Tree::Op(param, _) => places += usize::from(kept.contains(param)),
        Tree::Cat(_) | Tree::Zip(..) | Tree::Mix(_) => joined = true,
        Tree::Scan(_) | Tree::Cache(_) => {}
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
    let fixed = |param| match kept.contains(&param) || arena.spec(param).draws {
        true => arena.pin(param),
        false => param,
    };
    lowered.tree = lowered.tree.with_operators(&mut { fixed });
    Ok(())
}

/// Why rows cannot be cached where the user wants them to be.
pub(super) fn refused_at(
    searched: &Searched,
    lowered: &Lowered,
    config: &Config,
    step: &str,
) -> DataFusionError {
    let graph = &searched.graph;
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
        config.cache.refusal(arena, fact).err()
    });
    let texts: BTreeSet<String> = refusals.map(|refusal| refusal.to_string()).collect();
    let why = texts.into_iter().next().unwrap_or_default();
    plan_datafusion_err!(
        "CACHE AT {step}: {why}; cache at an earlier step, or, to keep the draws of the first epoch for all, \
         write CACHE AT {step} FREEZING RANDOMNESS"
    )
}
