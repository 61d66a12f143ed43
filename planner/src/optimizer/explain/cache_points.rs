//! The cost of caching the rows of each operator of the chosen plan.

use egg::Id;

use super::plan::TermWalk;
use crate::optimizer::arena::Arena;
use crate::optimizer::cache::steps;
use crate::optimizer::config::Config;
use crate::optimizer::cost::Cost;
use crate::optimizer::lang::Node;
use crate::optimizer::lower::Lowered;

/// An operator of the chosen plan, as a point at which rows could be cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePoint {
    /// The operator's text, for display.
    pub text: String,
    /// Estimated number of rows per epoch that the operator yields.
    pub rows: u128,
    /// Estimated bytes that the operator's rows take in the cache after all epochs.
    pub bytes: u128,
    /// Cost of all epochs if the plan caches the operator's rows, or the reason why these rows
    /// cannot be cached.
    pub total: Result<Cost, String>,
    /// True if the chosen plan caches the operator's rows.
    pub chosen: bool,
}

/// Every possible cache point of the chosen plan, from the sources up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheTable {
    /// The cache points, from the sources up.
    pub points: Vec<CachePoint>,
    /// Cost of all epochs of the chosen plan without a cache. Without a cache, another order of the
    /// operators might cost less.
    pub uncached: Cost,
}

impl CacheTable {
    pub(super) fn new(
        arena: &Arena,
        walk: &TermWalk<'_>,
        config: &Config,
        lowered: &Lowered,
        chosen: Option<Id>,
        stored: u64,
    ) -> Self {
        let epochs = Cost::from(config.cache.epochs);
        let places: Vec<_> = walk.positions().collect();
        let whole = places.last().map_or(0, |&(root, _)| walk.below(root));
        let asked = config.cache.at.as_ref();
        let asked = asked.map(|step| (step, steps(arena, lowered, step)));
        let points = places.into_iter().filter_map(|(at, node)| {
            let fact = node.fact.as_ref()?;
            let total = || {
                let refusal = config.cache.refusal(arena, fact);
                refusal.map_err(|refusal| refusal.to_string())?;
                if let Some((step, params)) = &asked {
                    let here = match walk.node(at) {
                        Node::Op([param, _, _]) => match walk.node(*param) {
                            Node::Param(param) => params.contains(param),
                            _ => false,
                        },
                        _ => false,
                    };
                    if !here {
                        return Err(format!("CACHE AT {step} names another operator"));
                    }
                }
                let below = walk.below(at);
                let above = whole.saturating_sub(below).saturating_mul(epochs);
                // The number of rows that the cache holds already is known only for the chosen
                // point. For other points, 0 is assumed.
                let stored = if chosen == Some(at) { stored } else { 0 };
                let total = config.cache.total(below, fact, stored);
                Ok(total.saturating_add(above))
            };
            Some(CachePoint {
                text: rows_text(arena, walk, at),
                rows: fact.rows.number(),
                bytes: config.cache.stored_bytes(fact),
                total: total(),
                chosen: chosen == Some(at),
            })
        });
        Self {
            points: points.collect(),
            uncached: whole.saturating_mul(epochs),
        }
    }

    /// The cache point of the chosen plan; `None` if the plan caches no rows.
    pub fn chosen(&self) -> Option<&CachePoint> {
        self.points.iter().find(|point| point.chosen)
    }
}

/// The text of the operator at the position `at`. A shuffle only reorders the rows of its input, so
/// the text of a shuffle is the text of its input followed by `, shuffled`.
fn rows_text(arena: &Arena, walk: &TermWalk<'_>, at: Id) -> String {
    match walk.node(at) {
        Node::Op([param, _, input]) if is_shuffle(arena, walk.node(*param)) => {
            format!("{}, shuffled", rows_text(arena, walk, *input))
        }
        _ => walk.text(arena, at),
    }
}

fn is_shuffle(arena: &Arena, param: &Node) -> bool {
    match param {
        Node::Param(param) => arena.spec(*param).kind.shuffles(),
        _ => false,
    }
}
