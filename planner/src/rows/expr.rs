//! Expressions over slots.

use std::collections::BTreeSet;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::Expr;
use forebay_udfs::row::ROW_COLUMN;

/// Returns an expression that reads the slot `name` of an operator's input.
pub fn slot(name: impl Into<String>) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

/// True if `expr` draws random numbers, or calls a function that is not declared deterministic.
pub fn draws(expr: &Expr) -> bool {
    expr.column_refs().iter().any(|c| c.name == ROW_COLUMN) || forebay_udfs::is_volatile(expr)
}

/// Returns the names of the slots that `expr` reads, without the hidden row column.
pub fn reads(expr: &Expr) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = expr
        .column_refs()
        .into_iter()
        .map(|c| c.name.clone())
        .collect();
    names.remove(ROW_COLUMN);
    names
}

/// Formats an expression for EXPLAIN: constants without their types, random streams as `#n`, and
/// calls without the hidden row column.
pub fn human(expr: &Expr) -> String {
    let shown = expr.clone().transform_up(|e| match &e {
        // DataFusion displays a column's name verbatim, so the text of a constant is inserted as a
        // column's name.
        Expr::Literal(value, _) => Ok(Transformed::yes(slot(constant_text(value)))),
        _ => match forebay_udfs::pinned(&e) {
            Some(inner) => Ok(Transformed::yes(slot(format!(
                "PINNED {}",
                inner.human_display()
            )))),
            None => Ok(Transformed::no(e)),
        },
    });
    let shown = shown.map_or_else(|_| expr.clone(), |t| t.data);
    shown
        .human_display()
        .to_string()
        .replace(&format!(", {ROW_COLUMN}"), "")
}

fn constant_text(value: &ScalarValue) -> String {
    match value {
        // Unsigned constants are always random streams, since integer literals of SQL are signed.
        ScalarValue::UInt64(Some(stream)) => format!("#{stream}"),
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => format!("'{text}'"),
        other => other.to_string(),
    }
}
