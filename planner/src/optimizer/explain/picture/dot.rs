//! Writes trees of boxes in Graphviz's DOT language.

use std::fmt::Write as _;

use super::panel::{Labelled, Panel};

/// Writes the panels as one DOT graph, with one cluster per panel. Each box is drawn above the
/// boxes of its inputs.
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

/// Adds the statements for `node` and its inputs to `text`, and returns the number of `node`.
/// `nodes` counts the boxes written so far.
fn add(node: &Labelled, nodes: &mut usize, text: &mut String) -> usize {
    let number = *nodes;
    *nodes += 1;
    let lines: Vec<String> = node.lines.iter().map(|line| escaped(line)).collect();
    let style = if node.highlighted {
        ", style=filled, fillcolor=\"#fff1cc\""
    } else {
        ""
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

/// Escapes `text` for a double-quoted string.
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
