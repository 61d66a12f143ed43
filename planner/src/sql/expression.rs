//! Plans the SQL texts of the builder that hold only items of a select list: `label`, `price * 2 AS
//! double`, `*`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::empty::EmptyTable;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::check::{KnownNames, check_query};
use super::diagnose::Diagnosis;
use super::fold::fold_arguments;
use super::names::settle_names;
use super::parse::parse;
use super::provider::QueryContext;
use super::statement::Statement;
use crate::error::{PlanError, Position, Result};
use crate::functions::FunctionNames;

/// The text before a select list that makes the list a query.
const BEFORE: &str = "SELECT ";
/// Name of the generated table from which the select list reads. No user table has this name.
const ROWS: &str = "__rows";

/// Plans the expressions of the select list `text` over rows with the columns `columns`.
pub(crate) fn select_list(
    text: &str,
    columns: SchemaRef,
    state: &SessionState,
    functions: &FunctionNames,
) -> Result<Vec<Expr>> {
    parsed(text, columns, state, functions).map_err(at_text)
}

fn parsed(
    text: &str,
    columns: SchemaRef,
    state: &SessionState,
    functions: &FunctionNames,
) -> Result<Vec<Expr>> {
    // `FROM` is on a new line because `text` may end with a comment.
    let mut statements = parse(&format!("{BEFORE}{text}\nFROM {ROWS}"))?;
    let (Some(Statement::Query(parsed)), true) = (statements.pop(), statements.is_empty()) else {
        return Err(PlanError::mistake("expected expressions, found statements"));
    };
    let names = KnownNames {
        functions,
        tables: BTreeSet::from([ROWS.to_owned()]),
    };
    let mut query = *parsed.query;
    check_query(&query, &names)?;
    let parameters = |name: &str| {
        let function = state.scalar_functions().get(name)?;
        function.signature().parameter_names.clone()
    };
    fold_arguments(&mut query, &parameters)?;
    let rows: Arc<dyn TableProvider> = Arc::new(EmptyTable::new(columns));
    let tables = BTreeMap::from([(ROWS.to_owned(), rows)]);
    settle_names(&mut query, &tables)?;
    let context = QueryContext {
        state,
        tables: &tables,
    };
    let plan = context.plan(&query).and_then(|plan| {
        // Types are checked here because the error of a later check could not point into `text`.
        context.analyze(plan.clone())?;
        Ok(plan)
    });
    let plan = plan.map_err(|error| {
        Diagnosis {
            query: &query,
            start: parsed.start,
        }
        .explain(&error, &|query| {
            context.analyze(context.plan(query)?).map(drop)
        })
        .with_source(error)
    })?;
    match plan {
        LogicalPlan::Projection(list) if matches!(*list.input, LogicalPlan::TableScan(_)) => {
            list.expr.into_iter().map(unqualified).collect()
        }
        _ => Err(
            PlanError::mistake(format!("\"{text}\" is not an expression over single rows"))
                .with_hint("write a whole query with sql(..)"),
        ),
    }
}

/// Removes the table qualifier from the columns of an expression.
fn unqualified(expr: Expr) -> Result<Expr> {
    let bare = expr.transform_up(|expr| match expr {
        Expr::Column(column) => Ok(Transformed::yes(Expr::Column(Column::new_unqualified(
            column.name,
        )))),
        expr => Ok(Transformed::no(expr)),
    });
    bare.map(|bare| bare.data)
        .map_err(|error| super::explain_unplaced(&error).with_source(error))
}

/// Converts the position of an error in the generated query to a position in the user's text.
fn at_text(mut error: PlanError) -> PlanError {
    let place = match &mut error {
        PlanError::Mistake(mistake) => &mut mistake.position,
        PlanError::Source { position, .. } => position,
        _ => return error,
    };
    *place = place.and_then(|at| match at.line {
        1 => Some(Position {
            line: 1,
            column: at.column.checked_sub(BEFORE.len() as u64)?.max(1),
        }),
        _ => Some(at),
    });
    error
}
