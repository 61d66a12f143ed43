//! What can go wrong while a pipeline is planned, and how it is shown to its author.

use std::fmt;
use std::fmt::Write as _;

use datafusion::common::DataFusionError;
use sqlparser::tokenizer::{Location, Span};

use crate::saved::error::SavedPlanError;

/// A place in SQL text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
}

impl Position {
    /// The place where a parser span starts; `None` for the empty span of made-up syntax.
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

/// A mistake of the author of a pipeline: what is wrong, where, and what may help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// What is wrong, without the place.
    pub message: String,
    /// Where, if the pipeline came from text.
    pub position: Option<Position>,
    /// What may help.
    pub hint: Option<String>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = self.position {
            write!(f, "{position}: ")?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// Why a pipeline could not be planned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The author's mistake.
    #[error("{0}")]
    Mistake(Box<Mistake>),
    /// A source that could not be opened.
    #[error("{}source {name}: {}", prefix(.position.as_ref()), message_of(.source))]
    Source {
        /// The source's name, or its table function call.
        name: String,
        /// Where it is named, if the pipeline came from text.
        position: Option<Position>,
        /// What its files or options are refused for.
        source: Box<DataFusionError>,
    },
    /// A saved plan that is none, or is not that of the pipeline.
    #[error(transparent)]
    Saved(#[from] SavedPlanError),
    /// A broken invariant of the planner.
    #[error("internal error: {message}; please report it")]
    Internal {
        /// What does not hold.
        message: String,
    },
}

/// Result of planning.
pub type Result<T, E = PlanError> = std::result::Result<T, E>;

fn prefix(position: Option<&Position>) -> String {
    position
        .map(|position| format!("{position}: "))
        .unwrap_or_default()
}

impl PlanError {
    /// A mistake without a place.
    pub fn mistake(message: impl Into<String>) -> Self {
        Self::Mistake(Box::new(Mistake {
            message: message.into(),
            position: None,
            hint: None,
        }))
    }

    /// A mistake at a place.
    pub fn at(position: impl Into<Option<Position>>, message: impl Into<String>) -> Self {
        Self::Mistake(Box::new(Mistake {
            message: message.into(),
            position: position.into(),
            hint: None,
        }))
    }

    /// Syntax that is understood but that nothing executes yet.
    pub fn unsupported(position: impl Into<Option<Position>>, what: &str) -> Self {
        Self::at(position, format!("{what} is not supported yet"))
    }

    /// A broken invariant.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::Internal {
            message: message.into(),
        }
    }

    /// The same mistake with a hint; other errors are unchanged.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        if let Self::Mistake(mistake) = &mut self {
            mistake.hint = Some(hint.into());
        }
        self
    }

    /// The same mistake with `did you mean "..."?` where a name of `candidates` is close to `name`.
    #[must_use]
    pub fn with_suggestion<'a>(
        self,
        name: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        match closest(name, candidates) {
            Some(found) => self.with_hint(format!("did you mean \"{found}\"?")),
            None => self,
        }
    }

    /// The same error at `position`, unless it knows its place.
    #[must_use]
    pub fn or_at(mut self, position: Position) -> Self {
        match &mut self {
            Self::Mistake(mistake) => {
                mistake.position.get_or_insert(position);
            }
            Self::Source {
                position: place, ..
            } => {
                place.get_or_insert(position);
            }
            Self::Saved(_) | Self::Internal { .. } => {}
        }
        self
    }

    /// The place of the error, if it is known.
    pub fn position(&self) -> Option<Position> {
        match self {
            Self::Mistake(mistake) => mistake.position,
            Self::Source { position, .. } => *position,
            Self::Saved(_) | Self::Internal { .. } => None,
        }
    }

    /// The message, followed by the line of `sql` that it points at and a caret.
    ///
    /// `sql` is the whole text that was given to [`parse`](crate::sql::parse).
    pub fn render(&self, sql: &str) -> String {
        let mut text = self.to_string();
        let Some(position) = self.position() else {
            return text;
        };
        let line = usize::try_from(position.line).unwrap_or(usize::MAX);
        let Some(source) = sql.split('\n').nth(line.saturating_sub(1)) else {
            return text;
        };
        let number = position.line.to_string();
        let before = usize::try_from(position.column)
            .unwrap_or(usize::MAX)
            .saturating_sub(1);
        // Tabs stay tabs, so that the caret stands below its character whatever their width.
        let pad: String = source
            .chars()
            .take(before)
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n{number} | {}\n{blank} | {pad}^",
            source.trim_end_matches('\r'),
            blank = " ".repeat(number.len()),
        );
        text
    }
}

impl From<PlanError> for DataFusionError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Internal { message } => Self::Internal(message),
            error => Self::External(Box::new(error)),
        }
    }
}

/// The message of a DataFusion error without its backtrace and the names of its layers.
pub fn message_of(error: &DataFusionError) -> String {
    match error {
        DataFusionError::Diagnostic(_, inner) => message_of(inner),
        DataFusionError::Context(context, inner) if is_layer(context) => message_of(inner),
        DataFusionError::Context(context, inner) => format!("{context}: {}", message_of(inner)),
        DataFusionError::Shared(inner) => message_of(inner),
        DataFusionError::External(inner) => inner.to_string(),
        DataFusionError::Internal(message) => {
            format!(
                "internal error: {}; please report it",
                message.trim_end_matches('.')
            )
        }
        DataFusionError::Collection(errors) => {
            errors.first().map_or_else(|| error.to_string(), message_of)
        }
        DataFusionError::ArrowError(inner, _) => inner.to_string(),
        DataFusionError::Plan(message)
        | DataFusionError::Execution(message)
        | DataFusionError::Configuration(message)
        | DataFusionError::NotImplemented(message) => message
            .split(DataFusionError::BACK_TRACE_SEP)
            .next()
            .unwrap_or_default()
            .to_owned(),
        _ => error.strip_backtrace(),
    }
}

/// Whether a context is only the name of a DataFusion rule.
fn is_layer(context: &str) -> bool {
    !context.contains(' ')
}

/// The candidate that a misspelt name most likely stands for, if any is close.
///
/// Distance is Damerau-Levenshtein on lower case; a third of the name's length may differ. A
/// candidate that the name is a prefix of, or the other way round, is taken where nothing is close.
pub fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let lower = name.to_lowercase();
    let limit = (lower.chars().count() / 3).max(1);
    let mut best: Option<(usize, &str)> = None;
    let mut longer: Option<&str> = None;
    for candidate in candidates {
        let other = candidate.to_lowercase();
        let distance = strsim::damerau_levenshtein(&lower, &other);
        if distance <= limit && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
        let related = other.starts_with(&lower) || lower.starts_with(&other);
        if related && lower.len().min(other.len()) >= 3 && longer.is_none() {
            longer = Some(candidate);
        }
    }
    best.map(|(_, candidate)| candidate)
        .or(longer)
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rendered_error_points_at_its_character() {
        let error = PlanError::at(Position { line: 2, column: 4 }, "unknown column \"x\"")
            .with_suggestion("lable", ["image", "label"]);
        insta::assert_snapshot!(error.render("SELECT\n\tä x\nFROM t"), @r#"
        line 2, column 4: unknown column "x"; did you mean "label"?
        2 | 	ä x
          | 	  ^
        "#);
    }

    #[test]
    fn an_error_without_a_place_or_beyond_the_text_renders_its_message() {
        assert_eq!(PlanError::mistake("no").render("SELECT"), "no");
        let beyond = PlanError::at(Position { line: 9, column: 1 }, "no");
        assert_eq!(beyond.render("SELECT"), "line 9, column 1: no");
    }

    #[test]
    fn suggestions_are_close_names_only() {
        assert_eq!(
            closest("lable", ["image", "label"]).as_deref(),
            Some("label")
        );
        assert_eq!(
            closest("RESIZ", ["resize", "size"]).as_deref(),
            Some("resize")
        );
        assert_eq!(
            closest("norm", ["normalize", "resize"]).as_deref(),
            Some("normalize")
        );
        assert_eq!(closest("zebra", ["image", "label"]), None);
    }
}
