//! Reads a step of egg's proof: the rule, and the path to the node that was rewritten.

use egg::{FlatTerm, Id, Language};

use super::plan::{inputs, node_text};
use crate::optimizer::arena::Arena;
use crate::optimizer::lang::{Node, Term};

/// A step of a proof: its rule, and the node that was rewritten.
pub(super) struct Rewrite {
    pub(super) rule: &'static str,
    pub(super) backwards: bool,
    /// Path from the root to the rewritten node, as child indices.
    pub(super) path: Vec<usize>,
}

impl Rewrite {
    pub(super) fn of(term: &FlatTerm<Node>) -> Option<Self> {
        let here = |rule: egg::Symbol, backwards| Self {
            rule: rule.as_str(),
            backwards,
            path: Vec::new(),
        };
        if let Some(rule) = term.forward_rule {
            return Some(here(rule, false));
        }
        if let Some(rule) = term.backward_rule {
            return Some(here(rule, true));
        }
        let mut children = term.children.iter().enumerate();
        children.find_map(|(index, child)| {
            let mut found = Self::of(child)?;
            found.path.insert(0, index);
            Some(found)
        })
    }
}

/// The operator at the end of a path from the root, and the operator below it, for display.
pub(super) fn site(
    arena: &Arena,
    term: &FlatTerm<Node>,
    path: &[usize],
) -> Option<(String, String)> {
    let above = path
        .iter()
        .try_fold(term, |at, &index| at.children.get(index))?;
    let below = inputs(&above.node).len();
    let below = &above.children[above.children.len() - below..];
    Some((flat_text(arena, above), flat_text(arena, below.first()?)))
}

fn flat_text(arena: &Arena, term: &FlatTerm<Node>) -> String {
    match term.children.first() {
        Some(first) => node_text(arena, &term.node, |_| &first.node),
        None => node_text(arena, &term.node, |_| &term.node),
    }
}

/// Adds a term of a proof to a plain term, and returns its position there.
pub(super) fn add(flat: &FlatTerm<Node>, term: &mut Term) -> Id {
    let children = flat.children.iter();
    let ids: Vec<Id> = children.map(|child| add(child, term)).collect();
    let mut ids = ids.into_iter();
    let node = flat.node.clone();
    term.add(node.map_children(|child| ids.next().unwrap_or(child)))
}
