//! Trees in the language of Graphviz.

use std::fmt::Write as _;

use super::{Labelled, Panel};

/// The panels as one DOT graph: inputs below, a cluster per panel.
pub fn dot(panels: &[Panel]) -> String {
    let mut text = String::from(
        "digraph plans {\n  rankdir=BT;\n  node [shape=box, fontname=monospace, fontsize=10];\n",
    );
    let mut nodes = 0;
    for (number, panel) in panels.iter().enumerate() {
        let heading = escaped(&panel.heading);
        text += &format!("  subgraph cluster_{number} {{\n    label=\"{heading}\";\n");
        add(&panel.root, &mut nodes, &mut text);
        text += "  }\n";
    }
    text + "}\n"
}

/// Adds a tree; the number of its root.
fn add(node: &Labelled, nodes: &mut usize, text: &mut String) -> usize {
    let number = *nodes;
    *nodes += 1;
    let lines: Vec<String> = node.lines.iter().map(|line| escaped(line)).collect();
    let style = match node.highlighted {
        true => ", style=filled, fillcolor=\"#fff1cc\"",
        false => "",
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "    n{number} [label=\"{}\"{style}];",
        lines.join("\\n")
    );
    for input in &node.inputs {
        let below = add(input, nodes, text);
        let _ = writeln!(text, "    n{below} -> n{number};");
    }
    number
}

/// A text between double quotes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
