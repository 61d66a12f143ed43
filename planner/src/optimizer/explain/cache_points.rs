//! What caching would cost at each operator of the chosen plan.

use egg::Id;

use super::plan::Walk;
use crate::optimizer::Config;
use crate::optimizer::arena::Arena;
use crate::optimizer::cache::steps;
use crate::optimizer::cost::Cost;
use crate::optimizer::lang::Node;
use crate::optimizer::lower::Lowered;
use crate::optimizer::spec::OpKind;

/// A place where rows could be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePoint {
    /// The operator whose rows they are.
    pub text: String,
    /// Rows of an epoch.
    pub rows: u128,
    /// Bytes that are kept in the end.
    pub bytes: u128,
    /// What all epochs cost then; else why the rows cannot be kept.
    pub total: Result<Cost, String>,
    /// Whether they are.
    pub chosen: bool,
}

/// Every place of the chosen plan, from the sources up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheTable {
    /// The places.
    pub points: Vec<CachePoint>,
    /// What all epochs of this plan cost without a cache. Another order may cost less.
    pub uncached: Cost,
}

impl CacheTable {
    pub(super) fn new(
        arena: &Arena,
        walk: &Walk<'_>,
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
                // Of the other places it is not known.
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

    /// The place whose rows are kept.
    pub fn chosen(&self) -> Option<&CachePoint> {
        self.points.iter().find(|point| point.chosen)
    }
}

/// The operator whose rows those at a place are: a shuffle has those below it, in another order.
fn rows_text(arena: &Arena, walk: &Walk<'_>, at: Id) -> String {
    match walk.node(at) {
        Node::Op([param, _, input]) if is_shuffle(arena, walk.node(*param)) => {
            format!("{}, shuffled", rows_text(arena, walk, *input))
        }
        _ => walk.text(arena, at),
    }
}

fn is_shuffle(arena: &Arena, param: &Node) -> bool {
    match param {
        Node::Param(param) => matches!(arena.spec(*param).kind, OpKind::Shuffle { .. }),
        _ => false,
    }
}
