//! Table functions: `FROM images('folder')`, `csv('file', delimiter => ';')`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Query, Spanned, TableAlias, TableFactor,
    UnaryOperator, Value, Visitor, VisitorMut,
};

use super::cursor::normalize;
use super::mix::is_mix;
use super::walk::{walk, walk_mut};
use crate::error::{PlanError, Position, Result};
use crate::source::{Format, SourceSpec};

/// A call of a table function.
#[derive(Debug, Clone)]
pub(crate) struct TableCall {
    /// The source that the call reads.
    pub(crate) spec: SourceSpec,
    /// Position of the call.
    pub(crate) position: Option<Position>,
}

/// Formats a source as the table function call that reads it, with options ordered by key. In a
/// plan, this text is the name of the scanned table.
pub(crate) fn canonical_name(spec: &SourceSpec) -> String {
    let quote = |text: &str| text.replace('\'', "''");
    let mut name = format!("{}('{}'", spec.format.function(), quote(&spec.location));
    for (key, value) in &spec.options {
        // Writing to a String cannot fail.
        let _ = write!(name, ", {key} => '{}'", quote(value));
    }
    name.push(')');
    name
}

/// Returns the table function calls of a query, in the order of the text.
pub(crate) fn table_calls(query: &Query) -> Result<Vec<TableCall>> {
    struct Calls(Vec<TableCall>);
    impl Visitor for Calls {
        type Break = PlanError;
        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<PlanError> {
            match call(factor) {
                Ok(found) => {
                    self.0.extend(found);
                    ControlFlow::Continue(())
                }
                Err(error) => ControlFlow::Break(error),
            }
        }
    }
    let mut calls = Calls(Vec::new());
    walk(query, &mut calls)?;
    Ok(calls.0)
}

/// Replaces each table function call by a table named by [`canonical_name`]. The table's alias is
/// the function's name, unless the query contains an alias.
pub(crate) fn replace_table_calls(query: &mut Query) {
    struct Replace;
    impl VisitorMut for Replace {
        type Break = PlanError;
        fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<PlanError> {
            let Ok(Some(found)) = call(factor) else {
                return ControlFlow::Continue(());
            };
            if let TableFactor::Table {
                name, alias, args, ..
            } = factor
            {
                let span = name.span();
                let mut table = Ident::with_quote('"', canonical_name(&found.spec));
                table.span = span;
                *name = ObjectName::from(vec![table]);
                *args = None;
                alias.get_or_insert_with(|| TableAlias {
                    explicit: true,
                    name: Ident::with_span(span, found.spec.format.function()),
                    columns: Vec::new(),
                    at: None,
                });
            }
            ControlFlow::Continue(())
        }
    }
    let _ = walk_mut(query, &mut Replace);
}

fn call(factor: &TableFactor) -> Result<Option<TableCall>> {
    let TableFactor::Table {
        name,
        args: Some(args),
        ..
    } = factor
    else {
        return Ok(None);
    };
    if is_mix(factor) {
        return Ok(None);
    }
    let position = Position::of_span(name.span());
    let function = match name.0.as_slice() {
        [part] => part.as_ident().map_or_else(|| part.to_string(), normalize),
        _ => name.to_string(),
    };
    let format = format_of(&function, position)?;
    let mut location: Option<String> = None;
    let mut options = BTreeMap::new();
    for argument in &args.args {
        let place = Position::of_span(argument.span()).or(position);
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) if location.is_none() => {
                if !options.is_empty() {
                    return Err(PlanError::at(
                        place,
                        "the location must come before the options",
                    ));
                }
                let Some(text) = string(expr) else {
                    let message = format!("{function} expects a quoted path first, found {expr}");
                    return Err(PlanError::at(place, message));
                };
                location = Some(text);
            }
            FunctionArg::Named {
                name,
                arg: FunctionArgExpr::Expr(expr),
                ..
            } => {
                let key = name.value.to_ascii_lowercase();
                let place = Position::of_span(name.span).or(place);
                let Some(value) = literal(expr) else {
                    let message = format!("option \"{key}\" expects a literal, found {expr}");
                    return Err(PlanError::at(place, message));
                };
                if options.insert(key.clone(), value).is_some() {
                    return Err(PlanError::at(
                        place,
                        format!("option \"{key}\" is given twice"),
                    ));
                }
            }
            other => {
                let message = format!(
                    "{function} expects one path and options as key => value, found {other}"
                );
                return Err(PlanError::at(place, message));
            }
        }
    }
    let location = location.ok_or_else(|| {
        PlanError::at(
            position,
            format!("{function} expects a quoted path, found no argument"),
        )
    })?;
    let spec = SourceSpec {
        format,
        location,
        options,
        columns: None,
    };
    Ok(Some(TableCall { spec, position }))
}

/// Returns the format that a table function reads.
fn format_of(function: &str, position: Option<Position>) -> Result<Format> {
    Format::of_function(function).ok_or_else(|| {
        let names: Vec<&str> = Format::ALL.iter().map(|format| format.function()).collect();
        let error = PlanError::at(position, format!("unknown table function \"{function}\""));
        match crate::error::closest(function, names.iter().copied()) {
            Some(found) => error.with_hint(format!("did you mean \"{found}\"?")),
            None => error.with_hint(format!("available table functions: {}", names.join(", "))),
        }
    })
}

fn string(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Formats a literal as an option's value.
fn literal(expr: &Expr) -> Option<String> {
    match expr {
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => Some(format!("-{}", literal(expr)?)),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => {
                Some(text.clone())
            }
            Value::Number(number, _) => Some(number.clone()),
            Value::Boolean(value) => Some(value.to_string()),
            _ => None,
        },
        _ => None,
    }
}
