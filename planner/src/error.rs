//! Errors of planning a pipeline, and their display to the pipeline's author.

use std::error::Error as StdError;
use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use datafusion::common::DataFusionError;

use crate::saved::error::SavedPlanError;
use crate::secrets::masked_text;

pub use crate::position::Position;

/// An error caused by the pipeline's author: a message, a position in the SQL text, and a hint.
#[derive(Debug, Clone)]
pub struct Mistake {
    /// The message, without the position.
    pub message: String,
    /// The position of the mistake, if the pipeline came from SQL text.
    pub position: Option<Position>,
    /// A remedy for the mistake, if there is an obvious remedy.
    pub hint: Option<String>,
    /// The DataFusion error that revealed the mistake, if there is one.
    pub source: Option<Arc<DataFusionError>>,
}

impl StdError for Mistake {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.source.as_ref()?;
        Some(source.as_ref())
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = self.position {
            write!(f, "{position}: ")?;
        }
        // The parser repeats the text that it does not understand, such as a misplaced location.
        f.write_str(&masked_text(&self.message))?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// An error that prevents planning a pipeline.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// An error caused by the pipeline's author, such as an unknown column.
    #[error("{0}")]
    Mistake(#[source] Box<Mistake>),
    /// A source could not be opened.
    #[error("{}source {name}: {}", prefix(.position.as_ref()), message_of(.source))]
    Source {
        /// The source's name, or its table function call.
        name: String,
        /// The position of the source's name, if the pipeline came from text.
        position: Option<Position>,
        /// The cause: an unreadable file or a wrong option.
        source: Box<DataFusionError>,
    },
    /// A saved plan is malformed, or belongs to another pipeline.
    #[error(transparent)]
    Saved(#[from] SavedPlanError),
    /// A broken invariant of the planner.
    #[error("internal error: {message}; please report it")]
    Internal {
        /// The invariant that does not hold.
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
    /// Creates a [`PlanError::Mistake`] without a position.
    pub fn mistake(message: impl Into<String>) -> Self {
        Self::Mistake(Box::new(Mistake {
            message: message.into(),
            position: None,
            hint: None,
            source: None,
        }))
    }

    /// Creates a [`PlanError::Mistake`] at a position in the SQL text.
    pub fn at(position: impl Into<Option<Position>>, message: impl Into<String>) -> Self {
        Self::Mistake(Box::new(Mistake {
            message: message.into(),
            position: position.into(),
            hint: None,
            source: None,
        }))
    }

    /// Creates the error for syntax that the parser accepts but Forebay does not implement yet.
    pub fn unsupported(position: impl Into<Option<Position>>, what: &str) -> Self {
        Self::at(position, format!("{what} is not supported yet"))
    }

    /// Creates the error for a broken invariant of the planner.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::Internal {
            message: message.into(),
        }
    }

    /// Adds `error`, the DataFusion error that revealed a [`PlanError::Mistake`]. Other variants
    /// are unchanged.
    #[must_use]
    pub fn with_source(mut self, error: DataFusionError) -> Self {
        if let Self::Mistake(mistake) = &mut self {
            mistake.source.get_or_insert_with(|| Arc::new(error));
        }
        self
    }

    /// Adds a hint to a [`PlanError::Mistake`]. Other variants are unchanged.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        if let Self::Mistake(mistake) = &mut self {
            mistake.hint = Some(hint.into());
        }
        self
    }

    /// Adds the hint `did you mean "..."?` to a [`PlanError::Mistake`] if one of `candidates` is
    /// close to `name`.
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

    /// Sets the position of the error, if the error has no position.
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

    /// The position of the error in the SQL text, if the error has a position.
    pub fn position(&self) -> Option<Position> {
        match self {
            Self::Mistake(mistake) => mistake.position,
            Self::Source { position, .. } => *position,
            Self::Saved(_) | Self::Internal { .. } => None,
        }
    }

    /// Renders the message, followed by the offending line of `sql` and a caret.
    ///
    /// `sql` is the whole text that was passed to [`parse`](crate::sql::parse). A line that has a
    /// secret is left out.
    pub fn render(&self, sql: &str) -> String {
        let mut text = self.to_string();
        let Some(position) = self.position() else {
            return text;
        };
        let line = usize::try_from(position.line).unwrap_or(usize::MAX);
        let Some(source) = sql.split('\n').nth(line.saturating_sub(1)) else {
            return text;
        };
        if masked_text(source) != source {
            return text;
        }
        let number = position.line.to_string();
        let before = usize::try_from(position.column)
            .unwrap_or(usize::MAX)
            .saturating_sub(1);
        // The padding keeps tabs so that the caret stands below its character for every tab width.
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

impl From<DataFusionError> for PlanError {
    /// Converts a broken invariant to [`PlanError::Internal`], and any other error to
    /// [`PlanError::Mistake`].
    fn from(error: DataFusionError) -> Self {
        if let Some(mistake) = mistake_within(&error) {
            return Self::Mistake(Box::new(mistake.clone()));
        }
        match broken_invariant(&error) {
            Some(message) => Self::internal(message),
            None => Self::mistake(message_of(&error)).with_source(error),
        }
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

/// Returns the message of an internal error, raised by DataFusion or by Forebay; `None` for any
/// other error.
pub fn broken_invariant(error: &DataFusionError) -> Option<&str> {
    let DataFusionError::Internal(message) = error.find_root() else {
        return None;
    };
    let message = message.split(DataFusionError::BACK_TRACE_SEP).next();
    message.map(|message| message.trim_end_matches('.'))
}

/// Finds a [`Mistake`] that passed through DataFusion as an external error.
pub(crate) fn mistake_within(error: &DataFusionError) -> Option<&Mistake> {
    match error {
        DataFusionError::External(error) => match error.downcast_ref() {
            Some(PlanError::Mistake(mistake)) => Some(mistake),
            _ => None,
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            mistake_within(inner)
        }
        _ => None,
    }
}

/// Returns the message of `error` without the backtrace and without the names of DataFusion's
/// rules.
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

/// True if `context` is only the name of a DataFusion rule, which has no spaces.
fn is_layer(context: &str) -> bool {
    !context.contains(' ')
}

/// Returns the candidate that a misspelt name most likely stands for, if any is close.
///
/// A candidate is close if its Damerau-Levenshtein distance in lower case is at most a third of the
/// name's length. If no candidate is close, the function returns the first candidate that begins
/// with `name`, or with which `name` begins.
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
    use datafusion::common::{internal_datafusion_err, plan_datafusion_err};

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
    fn neither_the_message_nor_the_line_shows_a_secret() {
        let sql = "CREATE EXTERNAL TABLE t 's3://key:a/secret@b/x'";
        let found = "expected STORED AS, found: 's3://key:a/secret@b/x'";
        let error = PlanError::at(
            Position {
                line: 1,
                column: 25,
            },
            found,
        );
        assert_eq!(
            error.render(sql),
            "line 1, column 25: expected STORED AS, found: 's3://...@b/x'"
        );
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

    /// A broken invariant stays an internal error when it passes through DataFusion, and a mistake
    /// keeps its source error.
    #[test]
    fn errors_of_datafusion_keep_class_and_source() {
        let broken = internal_datafusion_err!("slots differ").context("lowering the plan");
        let error = PlanError::from(broken);
        assert!(matches!(error, PlanError::Internal { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "internal error: slots differ; please report it"
        );
        let again = PlanError::from(DataFusionError::from(error));
        assert!(matches!(again, PlanError::Internal { .. }), "{again:?}");

        let mistake = PlanError::from(plan_datafusion_err!("no such column"));
        let PlanError::Mistake(mistake) = &mistake else {
            panic!("{mistake:?}");
        };
        assert_eq!(mistake.message, "no such column");
        let source = StdError::source(mistake).and_then(|why| why.downcast_ref());
        assert!(
            matches!(source, Some(DataFusionError::Plan(_))),
            "{source:?}"
        );
        // A mistake that passed through DataFusion keeps its message and position.
        let passed = DataFusionError::from(PlanError::at(Position { line: 2, column: 3 }, "odd"));
        assert_eq!(PlanError::from(passed).to_string(), "line 2, column 3: odd");
    }
}
