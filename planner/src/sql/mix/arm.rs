//! The arms of a MIX as subqueries.

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    Expr, Function, FunctionArguments, GroupByExpr, ObjectName, Query, Select, SelectFlavor,
    SelectItem, SetExpr, Spanned, TableFactor, TableFunctionArgs, TableWithJoins,
    WildcardAdditionalOptions,
};

use super::super::cursor::normalize;
use super::{is_mix, place};
use crate::error::{PlanError, Position, Result};

/// An arm as a subquery: a name and a table function as all of their rows.
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
    Ok(Expr::Subquery(Box::new(all_of(factor))))
}

fn table(name: ObjectName, args: Option<TableFunctionArgs>) -> TableFactor {
    TableFactor::Table {
        name,
        alias: None,
        args,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// `SELECT * FROM factor`, which is written nowhere.
fn all_of(factor: TableFactor) -> Query {
    let select = Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection: vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())],
        exclude: None,
        into: None,
        from: vec![TableWithJoins {
            relation: factor,
            joins: Vec::new(),
        }],
        lateral_views: Vec::new(),
        prewhere: None,
        selection: None,
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    };
    Query {
        with: None,
        body: Box::new(SetExpr::Select(Box::new(select))),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

/// The table expression of which [`all_of`] made the query: only its queries begin nowhere.
pub(super) fn written(query: &Query) -> Option<&TableFactor> {
    match query.body.as_ref() {
        SetExpr::Select(select) if Position::of_span(select.select_token.0.span).is_none() => {
            Some(&select.from.first()?.relation)
        }
        _ => None,
    }
}

/// What errors call an arm that has a name.
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
