//! Converts DataFusion errors to [`PlanError`]s with positions in the SQL text.

use std::ops::ControlFlow;

use datafusion::common::{Column, DataFusionError, SchemaError};
use sqlparser::ast::{
    Expr, JoinConstraint, JoinOperator, Query, Select, SelectItem, Spanned, Visitor, With,
};

use super::cursor::normalize;
use super::mix::weighted;
use super::select;
use super::walk::walk;
use crate::error::{PlanError, Position, broken_invariant, closest, message_of, mistake_within};
use crate::output::two_columns;

/// Maximum number of columns that a message lists.
const MAX_LISTED: usize = 12;

/// Maximum number of expressions that are planned one by one to find the expression that fails.
const MAX_TRIALS: usize = 512;

/// The context of an error that DataFusion reported for a query.
#[derive(Debug)]
pub(crate) struct Diagnosis<'a> {
    /// The query that DataFusion planned.
    pub(crate) query: &'a Query,
    /// Start of the query: the position of an error for which no better position is found.
    pub(crate) start: Position,
}

impl Diagnosis<'_> {
    /// Converts `error` to a [`PlanError`] with a position. If DataFusion reports no position, the
    /// function plans parts of the query with `plan`, innermost parts first, to find the part that
    /// fails.
    pub(crate) fn explain(
        &self,
        error: &DataFusionError,
        plan: &dyn Fn(&Query) -> Result<(), DataFusionError>,
    ) -> PlanError {
        let error = first(error);
        if let Some(mistake) = mistake_within(error) {
            return PlanError::Mistake(Box::new(mistake.clone())).or_at(self.start);
        }
        let span = error.diagnostic().and_then(|diagnostic| diagnostic.span);
        let position = span.map(|span| Position {
            line: span.start.line,
            column: span.start.column,
        });
        if let Some(schema_error) = schema_error(error) {
            let position = position
                .or_else(|| field_of(schema_error).and_then(column_position))
                .or_else(|| field_of(schema_error).and_then(|field| self.find_name(&field.name)));
            return explain_schema(schema_error, Some(position.unwrap_or(self.start)));
        }
        if let Some(message) = broken_invariant(error) {
            return PlanError::internal(message);
        }
        let message = message_of(error);
        if let Some(mistake) = self.explain_condition(&message) {
            return mistake;
        }
        let (place, message) = match position {
            Some(position) => (position, message),
            None => self.locate(&message, plan).unwrap_or((self.start, message)),
        };
        PlanError::at(place, tidy(&message))
    }

    /// Explains a WHERE condition that is not boolean or calls an aggregate function, and finds the
    /// position of the condition.
    fn explain_condition(&self, message: &str) -> Option<PlanError> {
        struct ConditionSearch(Vec<Position>);
        impl Visitor for ConditionSearch {
            type Break = PlanError;
            fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<PlanError> {
                let conditions = select.selection.iter().chain(&select.having);
                self.0
                    .extend(conditions.filter_map(|expr| Position::of_span(expr.span())));
                ControlFlow::Continue(())
            }
        }
        let aggregate = message.starts_with("Aggregate functions are not allowed in the WHERE");
        let explained = if aggregate {
            "an aggregate function is not allowed in WHERE; HAVING filters groups".to_owned()
        } else {
            let rest = message.strip_prefix("Cannot create filter with non-boolean predicate ")?;
            let (_, found) = rest.rsplit_once("returning ")?;
            format!("WHERE expects a condition, found a value of type {found}")
        };
        let mut conditions = ConditionSearch(Vec::new());
        let _ = walk(self.query, &mut conditions);
        // If the query has several conditions, the position is a guess: DataFusion does not report
        // which condition is wrong.
        let position = conditions.0.first().copied().unwrap_or(self.start);
        Some(PlanError::at(position, explained))
    }

    /// Position of the first use of a name as a column.
    fn find_name(&self, name: &str) -> Option<Position> {
        struct NameSearch<'a> {
            name: &'a str,
            first: Option<Position>,
        }
        impl Visitor for NameSearch<'_> {
            type Break = PlanError;

            fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<PlanError> {
                let joins = select.from.iter().flat_map(|from| &from.joins);
                let using = joins.filter_map(|join| match &join.join_operator {
                    JoinOperator::Join(JoinConstraint::Using(names))
                    | JoinOperator::Inner(JoinConstraint::Using(names))
                    | JoinOperator::Left(JoinConstraint::Using(names))
                    | JoinOperator::LeftOuter(JoinConstraint::Using(names))
                    | JoinOperator::Right(JoinConstraint::Using(names))
                    | JoinOperator::RightOuter(JoinConstraint::Using(names))
                    | JoinOperator::FullOuter(JoinConstraint::Using(names)) => Some(names),
                    _ => None,
                });
                let name = using
                    .flatten()
                    .find(|name| name.to_string().eq_ignore_ascii_case(self.name));
                let position = name.and_then(|name| Position::of_span(name.span()));
                self.first = self.first.or(position);
                ControlFlow::Continue(())
            }

            fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<PlanError> {
                let ident = match expr {
                    Expr::Identifier(ident) => ident,
                    Expr::CompoundIdentifier(idents) => match idents.last() {
                        Some(ident) => ident,
                        None => return ControlFlow::Continue(()),
                    },
                    _ => return ControlFlow::Continue(()),
                };
                if normalize(ident) == self.name {
                    self.first = self.first.or_else(|| Position::of_span(expr.span()));
                }
                ControlFlow::Continue(())
            }
        }
        let mut found = NameSearch { name, first: None };
        let _ = walk(self.query, &mut found);
        found.first
    }

    /// Finds the innermost expression that fails when it is planned alone, preferably with the
    /// error `message`. Returns the position of the expression, and its error message.
    fn locate(
        &self,
        message: &str,
        plan: &dyn Fn(&Query) -> Result<(), DataFusionError>,
    ) -> Option<(Position, String)> {
        let mut other = None;
        for trial in trials(self.query) {
            let Err(error) = plan(&trial.query) else {
                continue;
            };
            let error = first(&error);
            let found = message_of(error);
            if found == message {
                return Some((trial.position, found));
            }
            if other.is_none() && schema_error(error).is_none() {
                other = Some((trial.position, found));
            }
        }
        other.map(|(position, _)| (position, message.to_owned()))
    }
}

/// Converts `error` to a [`PlanError`] without a position, for a query that does not come from SQL
/// text.
pub(crate) fn explain_unplaced(error: &DataFusionError) -> PlanError {
    let error = first(error);
    if let Some(mistake) = mistake_within(error) {
        return PlanError::Mistake(Box::new(mistake.clone()));
    }
    match schema_error(error) {
        Some(error) => explain_schema(error, None),
        None => {
            if let Some(message) = broken_invariant(error) {
                return PlanError::internal(message);
            }
            let message = tidy(&message_of(error));
            match repeated_name(&message) {
                Some(name) => two_columns(name, None),
                None => PlanError::mistake(message),
            }
        }
    }
}

/// Extracts the name from DataFusion's message about a select list with duplicate items.
fn repeated_name(message: &str) -> Option<&str> {
    let rest = message.strip_prefix("Projections require unique expression names")?;
    rest.split('"').nth(1)
}

fn field_of(error: &SchemaError) -> Option<&Column> {
    match error {
        SchemaError::FieldNotFound { field, .. } | SchemaError::AmbiguousReference { field } => {
            Some(field)
        }
        _ => None,
    }
}

fn explain_schema(error: &SchemaError, position: Option<Position>) -> PlanError {
    match error {
        SchemaError::FieldNotFound {
            field,
            valid_fields,
        } => unknown_column(field, valid_fields, position),
        SchemaError::AmbiguousReference { field } => {
            PlanError::at(position, format!("column \"{}\" is ambiguous", field.name))
                .with_hint("write the table before it, as in table.column")
        }
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => {
            PlanError::at(position, format!("two columns are named \"{name}\""))
                .with_hint("give one of them another name with AS")
        }
    }
}

fn unknown_column(field: &Column, valid: &[Column], position: Option<Position>) -> PlanError {
    let same_table = |column: &&Column| {
        field.relation.is_none() || column.relation.as_ref() == field.relation.as_ref()
    };
    let mut names: Vec<&str> = valid
        .iter()
        .filter(same_table)
        .map(|column| column.name.as_str())
        .collect();
    names.dedup();
    if let Some(relation) = &field.relation
        && names.is_empty()
    {
        let tables = valid.iter().filter_map(|column| column.relation.as_ref());
        let message = format!("unknown table \"{relation}\" in \"{}\"", field.flat_name());
        return PlanError::at(position, message)
            .with_suggestion(relation.table(), tables.map(|table| table.table()));
    }
    let error = PlanError::at(position, format!("unknown column \"{}\"", field.name));
    match closest(&field.name, names.iter().copied()) {
        Some(found) => error.with_hint(format!("did you mean \"{found}\"?")),
        None if (1..=MAX_LISTED).contains(&names.len()) => {
            error.with_hint(format!("available columns: {}", names.join(", ")))
        }
        None => error,
    }
}

fn column_position(column: &Column) -> Option<Position> {
    let span = column.spans.first()?;
    Some(Position {
        line: span.start.line,
        column: span.start.column,
    })
}

/// Returns the first error of a collection, or else `error` itself.
fn first(error: &DataFusionError) -> &DataFusionError {
    match error {
        DataFusionError::Collection(errors) => errors.first().map_or(error, first),
        _ => error,
    }
}

fn schema_error(error: &DataFusionError) -> Option<&SchemaError> {
    match error {
        DataFusionError::SchemaError(error, _) => Some(error),
        DataFusionError::Diagnostic(_, inner) | DataFusionError::Context(_, inner) => {
            schema_error(inner)
        }
        DataFusionError::Collection(errors) => errors.first().and_then(schema_error),
        DataFusionError::Shared(inner) => schema_error(inner),
        _ => None,
    }
}

/// Reduces a message to one line without DataFusion's prefixes.
fn tidy(message: &str) -> String {
    let mut message = message;
    for layer in [
        "Error during planning: ",
        "This feature is not implemented: ",
        "Parser error: ",
    ] {
        message = message.strip_prefix(layer).unwrap_or(message);
    }
    if let Some((said, _)) = message.split_once(" No function matches the given name")
        && !said.is_empty()
    {
        message = said;
    }
    if message.starts_with("Column in SELECT must be in GROUP BY")
        && let Some(column) = message.split('"').nth(1)
    {
        return format!("column \"{column}\" must be in GROUP BY or in an aggregate function");
    }
    let lines: Vec<_> = message
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines.join(" ").trim_end_matches('.').to_owned()
}

/// One expression of a query, as the only item of a generated query over the same `FROM`.
struct ExprTrial {
    query: Query,
    position: Position,
}

fn trials(query: &Query) -> Vec<ExprTrial> {
    #[derive(Default)]
    struct Trials {
        withs: Vec<Option<With>>,
        selects: Vec<Select>,
        /// Arms of the MIX calls that contain the current node of the walk.
        arms: Vec<Expr>,
        found: Vec<ExprTrial>,
    }
    impl Visitor for Trials {
        type Break = PlanError;

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<PlanError> {
            self.withs.push(query.with.clone());
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<PlanError> {
            self.withs.pop();
            ControlFlow::Continue(())
        }

        fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<PlanError> {
            self.selects.push(select.clone());
            ControlFlow::Continue(())
        }

        fn post_visit_select(&mut self, _select: &Select) -> ControlFlow<PlanError> {
            self.selects.pop();
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<PlanError> {
            if let Some((arm, _)) = weighted(expr) {
                self.arms.push(arm.clone());
            }
            ControlFlow::Continue(())
        }

        fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<PlanError> {
            let trivial = matches!(
                expr,
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_)
            );
            // An arm of a MIX, with or without its weight, is not a value that can be planned
            // alone.
            let arm = weighted(expr).is_some() || self.arms.last() == Some(expr);
            if weighted(expr).is_some() {
                self.arms.pop();
            }
            if arm || trivial || self.found.len() >= MAX_TRIALS {
                return ControlFlow::Continue(());
            }
            // Expressions after the last SELECT, such as those of ORDER BY, have no FROM over which
            // to plan them.
            if let Some(select) = self.selects.last()
                && let Some(position) = Position::of_span(expr.span())
            {
                let query = alone(expr, select, &self.withs);
                self.found.push(ExprTrial { query, position });
            }
            ControlFlow::Continue(())
        }
    }
    let mut trials = Trials::default();
    let _ = walk(query, &mut trials);
    trials.found
}

fn alone(expr: &Expr, select: &Select, withs: &[Option<With>]) -> Query {
    let mut with: Option<With> = None;
    for outer in withs.iter().flatten() {
        match &mut with {
            Some(with) => with.cte_tables.extend(outer.cte_tables.iter().cloned()),
            None => with = Some(outer.clone()),
        }
    }
    let mut select = select.clone();
    select.projection = vec![SelectItem::UnnamedExpr(expr.clone())];
    select.distinct = None;
    select.selection = None;
    select.group_by = sqlparser::ast::GroupByExpr::Expressions(Vec::new(), Vec::new());
    select.having = None;
    select.qualify = None;
    select::query(with, select)
}
