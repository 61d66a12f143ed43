//! The cost of caching at each operator of the chosen plan.

use egg::Id;

use super::plan::TermWalk;
use crate::optimizer::arena::Arena;
use crate::optimizer::cache::steps;
use crate::optimizer::config::Config;
use crate::optimizer::cost::Cost;
use crate::optimizer::lang::Node;
use crate::optimizer::lower::Lowered;

/// An operator whose rows could be cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePoint {
    /// The operator, for display.
    pub text: String,
    /// Number of rows per epoch that the operator yields.
    pub rows: u128,
    /// Bytes of these rows in the cache after all epochs.
    pub bytes: u128,
    /// Cost of all epochs with this cache point, or the reason why its rows cannot be cached.
    pub total: Result<Cost, String>,
    /// True if the plan caches these rows.
    pub chosen: bool,
}

/// Every possible cache point of the chosen plan, from the sources up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheTable {
    /// The cache points, from the sources up.
    pub points: Vec<CachePoint>,
    /// Cost of all epochs of the chosen plan's operators without a cache. Another order of them may
    /// cost less.
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
                        return Err(format!("CACHE AT {step} asks for another place"));
                    }
                }
                let below = walk.below(at);
                let above = whole.saturating_sub(below).saturating_mul(epochs);
                // For the points that were not chosen, the number of stored rows is unknown.
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

    /// The chosen cache point.
    pub fn chosen(&self) -> Option<&CachePoint> {
        self.points.iter().find(|point| point.chosen)
    }
}

/// The text of the operator whose rows a cache point stores. A shuffle only reorders the rows of
/// the operator below it, so both are named.
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
