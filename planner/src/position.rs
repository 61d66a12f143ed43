//! Positions in SQL text.

use std::fmt;

use sqlparser::tokenizer::{Location, Span};

/// A position in SQL text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
}

impl Position {
    /// The start of a parser span; `None` for the empty span of generated syntax.
    pub fn of_span(span: Span) -> Option<Self> {
        Self::of_location(span.start)
    }

    pub(crate) fn of_location(location: Location) -> Option<Self> {
        (location.line > 0).then_some(Self {
            line: location.line,
            column: location.column,
        })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}
