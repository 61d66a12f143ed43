//! Chooses a plan. Cache points whose rows the cache holds already are cheaper, since these rows
//! need not be computed and written again.
//!
//! The cache identifies rows by a text that can only be derived from a whole plan. So the search
//! for a stored cache point is optimistic: the cheapest plan is extracted as if the cache held the
//! rows of every point, and then the cache is asked for the rows at the cache point of this plan.
//! If the cache has none of these rows, the next plan is extracted as if that point could not be
//! cached.

use std::collections::{BTreeSet, HashSet};

use datafusion::common::Result;
use egg::Id;

use super::arena::Arena;
use super::config::Config;
use super::extract::{self, Priced};
use super::graph::PlanGraph;
use super::ids::ParamId;
use super::lower::Lowered;
use super::raise::raise;
use super::rules::is_disabled;
use super::stored::{StoredPoint, name_of};
use super::tree::OperatorTree;
use crate::rows::RowOp;
use crate::rows::canonical::rows_text;
use crate::rows::finalize::finalize;

/// Maximum number of cache points whose rows the cache is asked for. If the cache has rows of none,
/// the plan is chosen that is cheapest with an empty cache.
const ASKED: usize = 8;

/// Returns the plan of the class `root` that is cheapest over all epochs, and the plan's cache
/// point if the cache already holds rows of that point. `None` if no plan of finite cost can be
/// extracted.
pub(super) fn cheapest(
    graph: &PlanGraph,
    config: &Config,
    lowered: &Lowered,
    at: Option<&BTreeSet<ParamId>>,
    root: Id,
) -> Option<(OperatorTree, Priced, Option<StoredPoint>)> {
    let extract = |stored: &dyn Fn(Id) -> Option<u64>| {
        extract::cheapest(graph, &config.prices, &config.cache, at, stored, root)
    };
    let (tree, priced) = extract(&|_| Some(0))?;
    // If the user names the cache point, stored rows of other points do not matter.
    let stored = config.cache.stored.as_ref().filter(|_| at.is_none());
    let Some(stored) = stored else {
        return Some((tree, priced, None));
    };
    let mut asked = HashSet::new();
    while asked.len() < ASKED {
        let (hoped, hope) = extract(&|class| (!asked.contains(&class)).then_some(u64::MAX))?;
        let Some(class) = hope.cached_at.filter(|_| hope.total < priced.total) else {
            break;
        };
        let text = prefix_text(&graph.analysis.arena, &hoped, lowered, config);
        let text = text.ok().flatten().unwrap_or_default();
        let rows = stored.rows(&text);
        if rows > 0 {
            let (tree, known) = extract(&|id| Some(if id == class { rows } else { 0 }))?;
            if known.cached_at == Some(class) && known.total < priced.total {
                let prefix = name_of(&text);
                return Some((tree, known, Some(StoredPoint { prefix, rows })));
            }
        }
        asked.insert(class);
    }
    Some((tree, priced, None))
}

/// Returns the text by which the cache identifies the rows that the plan `tree` caches; `None` if
/// the plan caches no rows.
fn prefix_text(
    arena: &Arena,
    tree: &OperatorTree,
    lowered: &Lowered,
    config: &Config,
) -> Result<Option<String>> {
    let raised = raise(arena, tree, &lowered.outputs)?.without_pins()?;
    let plan = finalize(raised, |rule| is_disabled(&config.disabled, rule))?;
    let mut kept = None;
    plan.visit(&mut |node| {
        if matches!(node.op, RowOp::Cache) {
            kept = node.inputs.first();
        }
    });
    kept.map(|prefix| rows_text(prefix).map(|(text, _)| text))
        .transpose()
}
