//! Reads the steps of egg's proofs: the rule of a step, and the path to the node that it rewrites.

use egg::{FlatTerm, Id, Language};

use super::plan::{inputs, node_text};
use crate::optimizer::arena::Arena;
use crate::optimizer::lang::{Node, Term};

/// A step of a proof: its rule, its direction, and the node that it rewrites.
pub(super) struct Rewrite {
    pub(super) rule: &'static str,
    pub(super) backwards: bool,
    /// Path from the term's root to the rewritten node: at each level, the index of the child.
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

/// The texts of the operator at the end of `path` in `term`, and of the operator below it.
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

/// Appends the nodes of `flat`, a term of a proof, to `term`, and returns the id of the root of
/// `flat` in `term`.
pub(super) fn add(flat: &FlatTerm<Node>, term: &mut Term) -> Id {
    let children = flat.children.iter();
    let ids: Vec<Id> = children.map(|child| add(child, term)).collect();
    let mut ids = ids.into_iter();
    let node = flat.node.clone();
    term.add(node.map_children(|child| ids.next().unwrap_or(child)))
}
