//! Draws panels side by side as SVG. In each panel the root is on top, and each box is centred over
//! its inputs.

use std::fmt::Write as _;

use super::panel::{Labelled, Panel};

/// Maximum number of characters of a line that are shown. A tooltip has the whole line.
const LONGEST: usize = 64;
/// Width of a character of the monospaced font, in pixels.
const CHARACTER: usize = 7;
/// Height of a line, in pixels.
const LINE: usize = 16;
/// Padding within a box, and horizontal gap between adjacent boxes, in pixels.
const GAP: usize = 12;
/// Vertical gap between a row of boxes and the row below, in pixels.
const LEVEL: usize = 26;
/// Margin around a panel, in pixels.
const MARGIN: usize = 24;
/// Height of a panel's heading, in pixels.
const HEADING: usize = 28;

/// Draws the panels as an SVG document.
pub fn svg(panels: &[Panel]) -> String {
    let mut body = String::new();
    let (mut left, mut height) = (MARGIN, 0);
    for panel in panels {
        let width = width(&panel.root).max(panel.heading.chars().count() * (CHARACTER + 1));
        let mut drawing = Drawing {
            row: LEVEL + box_height(&panel.root),
            body: &mut body,
        };
        drawing.heading(left, &panel.heading);
        drawing.tree(&panel.root, left, MARGIN + HEADING);
        height = height.max(depth(&panel.root) * drawing.row);
        left += width + 2 * MARGIN;
    }
    let height = height + HEADING + 2 * MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{left}\" height=\"{height}\" \
         viewBox=\"0 0 {left} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"{left}\" height=\"{height}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

/// The lines of the box `node`, each cut to [`LONGEST`] characters.
fn lines(node: &Labelled) -> impl Iterator<Item = String> {
    node.lines.iter().map(|line| match line.chars().count() {
        0..=LONGEST => line.clone(),
        _ => line.chars().take(LONGEST - 1).chain(['…']).collect(),
    })
}

fn own_width(node: &Labelled) -> usize {
    let longest = lines(node).map(|line| line.chars().count()).max();
    longest.unwrap_or(0) * CHARACTER + 2 * GAP
}

fn inputs_width(node: &Labelled) -> usize {
    let gaps = node.inputs.len().saturating_sub(1) * GAP;
    node.inputs.iter().map(width).sum::<usize>() + gaps
}

fn width(node: &Labelled) -> usize {
    own_width(node).max(inputs_width(node))
}

/// Height of the tallest box of the tree `node`, in pixels.
fn box_height(node: &Labelled) -> usize {
    let own = node.lines.len() * LINE + GAP;
    let below = node.inputs.iter().map(box_height);
    below.fold(own, usize::max)
}

fn depth(node: &Labelled) -> usize {
    1 + node.inputs.iter().map(depth).max().unwrap_or(0)
}

/// A drawing in progress. Writing to a `String` cannot fail, so the results of `writeln!` are
/// ignored.
struct Drawing<'a> {
    /// Distance between the tops of consecutive rows of boxes, in pixels.
    row: usize,
    body: &'a mut String,
}

impl Drawing<'_> {
    fn heading(&mut self, x: usize, text: &str) {
        let (y, text) = (MARGIN + LINE, escaped(text));
        let _ = writeln!(
            self.body,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"13\" font-weight=\"bold\">{text}</text>"
        );
    }

    /// Draws the tree `node` with its upper left corner at `left` and `top`, and returns the
    /// horizontal centre of the root's box. All positions are in pixels.
    fn tree(&mut self, node: &Labelled, left: usize, top: usize) -> usize {
        let (own, middle) = (own_width(node), left + width(node) / 2);
        let height = node.lines.len() * LINE + GAP;
        let mut x = middle - inputs_width(node) / 2;
        for input in &node.inputs {
            let below = self.tree(input, x, top + self.row);
            x += width(input) + GAP;
            let (from, to) = (top + self.row, top + height);
            let _ = writeln!(
                self.body,
                "<path d=\"M{below} {from} L{middle} {to}\" stroke=\"#5f6b7a\" fill=\"none\"/>"
            );
        }
        let (fill, edge) = if node.highlighted {
            ("#fff1cc", "#b7791f")
        } else {
            ("#f4f6f8", "#5f6b7a")
        };
        let (x, title) = (middle - own / 2, escaped(&node.lines.join("\n")));
        let _ = writeln!(
            self.body,
            "<g><title>{title}</title><rect x=\"{x}\" y=\"{top}\" width=\"{own}\" \
             height=\"{height}\" rx=\"4\" fill=\"{fill}\" stroke=\"{edge}\"/>"
        );
        for (index, line) in lines(node).enumerate() {
            let (x, y) = (x + GAP, top + (index + 1) * LINE);
            let line = escaped(&line);
            let _ = writeln!(self.body, "<text x=\"{x}\" y=\"{y}\">{line}</text>");
        }
        *self.body += "</g>\n";
        middle
    }
}

/// Escapes `text` for XML, and replaces characters that XML forbids.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                escaped.push(char::REPLACEMENT_CHARACTER);
            }
            c => escaped.push(c),
        }
    }
    escaped
}
