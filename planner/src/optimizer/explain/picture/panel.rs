//! Trees of labelled boxes, each with a heading.

use std::collections::BTreeSet;

use crate::optimizer::explain::explained::Explained;
use crate::optimizer::explain::plan::PlanNode;
use crate::units::{bytes_text, cost_text};

/// The box of an operator, with the boxes of the operator's inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labelled {
    /// The lines of the box's label.
    pub lines: Vec<String>,
    /// True if the box is coloured.
    pub highlighted: bool,
    /// The boxes of the operator's inputs.
    pub inputs: Vec<Self>,
}

/// A tree with a heading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panel {
    /// The heading above the tree.
    pub heading: String,
    /// The tree.
    pub root: Labelled,
}

impl Explained {
    /// Returns the panels of the written and of the chosen plan. Operators that only one plan has,
    /// that moved, or whose rows are cached are highlighted.
    pub fn panels(&self) -> [Panel; 2] {
        let [written, chosen] = [&self.written, &self.chosen].map(PlanNode::operators);
        let texts = |nodes: &[&PlanNode]| -> Vec<String> {
            nodes.iter().map(|node| node.text.clone()).collect()
        };
        let same = common(&texts(&written), &texts(&chosen));
        let [of_written, of_chosen]: [BTreeSet<usize>; 2] = [
            same.iter().map(|&(i, _)| i).collect(),
            same.iter().map(|&(_, j)| j).collect(),
        ];
        let panel = |name, total, plan, same| Panel {
            heading: match self.epochs {
                1 => format!("{name}: {} over 1 epoch", cost_text(total)),
                epochs => format!("{name}: {} over {epochs} epochs", cost_text(total)),
            },
            root: labelled(plan, same, &mut 0),
        };
        let report = &self.report;
        [
            panel("Written", report.written, &self.written, &of_written),
            panel("Chosen", report.chosen, &self.chosen, &of_chosen),
        ]
    }
}

/// Returns the box of the operator `node`. `next` is the operator's index in the plan, each
/// operator before its inputs, and is advanced past the operator and its inputs. The box is
/// highlighted if this index is not in `same`, or if the operator's rows are cached.
fn labelled(node: &PlanNode, same: &BTreeSet<usize>, next: &mut usize) -> Labelled {
    let highlighted = !same.contains(next) || node.cached;
    *next += 1;
    let (own, bytes) = (cost_text(node.own), bytes_text(node.row_bytes));
    let mut lines = vec![
        node.text.clone(),
        format!("{own} an epoch, {} rows of {bytes}", node.rows),
    ];
    if node.cached {
        lines.push("kept from epoch to epoch".to_owned());
    }
    let inputs = node.inputs.iter();
    Labelled {
        lines,
        highlighted,
        inputs: inputs.map(|input| labelled(input, same, next)).collect(),
    }
}

/// A longest common subsequence of `a` and `b`, as pairs of an index into `a` and an index into
/// `b`.
pub(super) fn common(a: &[String], b: &[String]) -> Vec<(usize, usize)> {
    let mut longest = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            longest[i][j] = if a[i] == b[j] {
                longest[i + 1][j + 1] + 1
            } else {
                longest[i + 1][j].max(longest[i][j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut pairs = Vec::new();
    while i < a.len() && j < b.len() {
        if a[i] == b[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if longest[i + 1][j] >= longest[i][j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}
