//! The table expression of a MIX.

use sqlparser::ast::{ObjectName, Spanned, TableFactor};

use crate::error::Position;
use crate::sql::cursor::normalize;

/// True if a table expression is a MIX.
pub(in crate::sql) fn is_mix(factor: &TableFactor) -> bool {
    matches!(factor, TableFactor::Table { name, args: Some(_), .. } if names_mix(name))
}

fn names_mix(name: &ObjectName) -> bool {
    let [part] = name.0.as_slice() else {
        return false;
    };
    part.as_ident()
        .is_some_and(|ident| ident.quote_style.is_none() && normalize(ident) == "mix")
}

pub(super) fn place(factor: &TableFactor) -> Option<Position> {
    match factor {
        TableFactor::Table { name, .. } => Position::of_span(name.span()),
        _ => None,
    }
}
