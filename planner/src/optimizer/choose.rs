//! Chooses a plan, considering cache points whose rows are stored already and cost nothing to
//! write.
//!
//! The store identifies rows by a text that takes a whole plan to derive. So the search for a
//! stored point is optimistic: it extracts the cheapest plan as if every point were stored, and
//! then asks the store for the point of that plan. If the store lacks this point, the search
//! continues as if the point could not be cached.

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

/// Maximum number of points that the store is asked for; after that, the plan without stored points
/// is taken.
const ASKED: usize = 8;

/// Returns the cheapest plan of a class over all epochs, with the stored cache point that the plan
/// reads, if any. `None` if no plan could be extracted.
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
    // A cache point that the user names leaves no choice.
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

/// Returns the text that identifies the cached rows of a plan once it is finalized; `None` if the
/// plan caches nothing.
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
