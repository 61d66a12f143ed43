//! Converts the arms of a MIX to subqueries.

use sqlparser::ast::{
    Expr, Function, FunctionArguments, ObjectName, Query, SelectItem, SetExpr, Spanned,
    TableFactor, TableFunctionArgs, WildcardAdditionalOptions,
};

use super::factor::{is_mix, place};
use crate::error::{PlanError, Position, Result};
use crate::sql::cursor::normalize;
use crate::sql::select::{select, table};

/// Converts an arm to a subquery. The name of a table or a table function becomes a query of all
/// rows of the table.
pub(super) fn subquery(arm: &Expr) -> Result<Expr> {
    let factor = match arm {
        Expr::Subquery(_) => return Ok(arm.clone()),
        Expr::Identifier(name) => table(ObjectName::from(vec![name.clone()]), None),
        Expr::CompoundIdentifier(parts) => table(ObjectName::from(parts.clone()), None),
        Expr::Function(Function {
            name,
            args: FunctionArguments::List(list),
            filter: None,
            null_treatment: None,
            over: None,
            within_group,
            ..
        }) if within_group.is_empty()
            && list.duplicate_treatment.is_none()
            && list.clauses.is_empty() =>
        {
            let args = TableFunctionArgs {
                args: list.args.clone(),
                settings: None,
            };
            let factor = table(name.clone(), Some(args));
            if is_mix(&factor) {
                return Err(PlanError::unsupported(place(&factor), "a MIX inside a MIX"));
            }
            factor
        }
        other => {
            let message = format!(
                "MIX expects the name of a table or a pipeline, a table function or (SELECT ..), found {other}"
            );
            return Err(PlanError::at(Position::of_span(other.span()), message));
        }
    };
    let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
    Ok(Expr::Subquery(Box::new(select(vec![all], factor))))
}

/// Returns the table expression that [`subquery`] wrapped in a query; `None` if `query` stands in
/// the user's text. Only generated queries have no start position.
pub(super) fn written(query: &Query) -> Option<&TableFactor> {
    match query.body.as_ref() {
        SetExpr::Select(select) if Position::of_span(select.select_token.0.span).is_none() => {
            Some(&select.from.first()?.relation)
        }
        _ => None,
    }
}

/// Returns the name of an arm for error messages.
pub(super) fn named(factor: &TableFactor) -> String {
    let TableFactor::Table { name, .. } = factor else {
        return factor.to_string();
    };
    match name.0.as_slice() {
        [part] => {
            let name = part.as_ident().map_or_else(|| part.to_string(), normalize);
            format!("\"{name}\"")
        }
        _ => format!("\"{name}\""),
    }
}
