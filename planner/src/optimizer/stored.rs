//! A cache point whose rows are stored already: nothing is charged for writing them again.
//!
//! Which rows a store has is known by what the rows are, a text that takes a whole plan to make. So the search for
//! such a point is optimistic: the cheapest plan is extracted as if every point were stored, and the store is asked
//! for the point that this plan has. Where it has nothing, the next best one is asked for.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use datafusion::common::Result;
use egg::Id;
use serde::{Deserialize, Serialize};

use super::Config;
use super::arena::{Arena, ParamId};
use super::extract::{self, Priced};
use super::graph::PlanGraph;
use super::lower::Lowered;
use super::raise::raise;
use super::rules::is_disabled;
use super::tree::Tree;
use crate::rows::RowOp;
use crate::rows::canonical::rows_text;
use crate::rows::tidy::tidy;

/// Points that the store is asked for at most.
const ASKED: usize = 8;

/// Says what a cache has.
pub trait StoredRows: fmt::Debug + Send + Sync {
    /// Rows that are stored of those with this [text](rows_text).
    fn rows(&self, text: &str) -> u64;
}

/// A cache point that was stored, in whole or in part, when a plan was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredPoint {
    /// Names its rows: BLAKE3 of their text.
    pub prefix: String,
    /// Rows that were stored.
    pub rows: u64,
}

impl StoredRows for StoredPoint {
    fn rows(&self, text: &str) -> u64 {
        match self.prefix == name_of(text) {
            true => self.rows,
            false => 0,
        }
    }
}

fn name_of(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// The cheapest plan of a class over all epochs, and the stored point that it reads, where it was chosen for that.
pub(super) fn cheapest(
    graph: &PlanGraph,
    config: &Config,
    lowered: &Lowered,
    at: Option<&BTreeSet<ParamId>>,
    root: Id,
) -> Option<(Tree, Priced, Option<StoredPoint>)> {
    let extract = |stored: &dyn Fn(Id) -> Option<u64>| {
        extract::cheapest(graph, &config.prices, &config.cache, at, stored, root)
    };
    let (tree, priced) = extract(&|_| Some(0))?;
    // Where the user says where rows are kept, there is nothing to choose.
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

/// The text of the rows that a plan keeps, as the plan that runs has them.
fn prefix_text(
    arena: &Arena,
    tree: &Tree,
    lowered: &Lowered,
    config: &Config,
) -> Result<Option<String>> {
    let raised = raise(arena, tree, &lowered.outputs)?.without_pins()?;
    let plan = tidy(raised, |rule| is_disabled(&config.disabled, rule))?;
    let mut kept = None;
    plan.visit(&mut |node| {
        if matches!(node.op, RowOp::Cache) {
            kept = node.inputs.first();
        }
    });
    kept.map(|prefix| rows_text(prefix).map(|(text, _)| text))
        .transpose()
}
