//! From a parsed query to a planned pipeline.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use arrow::compute::can_cast_types;
use arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, Result as DataFusionResult, plan_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr as LogicalExpr, ExprSchemable, LogicalPlan};
use sqlparser::ast::{Expr, Query, Select, SelectItem, SetExpr, Spanned, TableFactor};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;

use super::check::{Names, check_query};
use super::cursor::normalize;
use super::diagnose::Diagnosis;
use super::fold::fold_arguments;
use super::long_list::plan_long_list;
use super::mix::place_of;
use super::names::{settle_clauses, settle_names};
use super::provider::QueryContext;
use super::statement::PipelineQuery;
use super::table_function::replace_table_calls;
use crate::clauses::Clauses;
use crate::error::{PlanError, Position, Result, message_of};
use crate::functions::FunctionNames;
use crate::groups::check_groups;
use crate::mix;
use crate::pipeline::{BUCKET_COLUMN, Pipeline};

/// Plans one query.
pub(crate) struct QueryPlanner<'a> {
    state: &'a SessionState,
    source: &'a PipelineQuery,
    functions: &'a FunctionNames,
}

impl<'a> QueryPlanner<'a> {
    pub(crate) fn new(
        state: &'a SessionState,
        source: &'a PipelineQuery,
        functions: &'a FunctionNames,
    ) -> Self {
        Self {
            state,
            source,
            functions,
        }
    }

    /// Checks the syntax tree before any source is opened.
    pub(crate) fn check<'n>(&self, tables: impl Iterator<Item = &'n String>) -> Result<()> {
        let names = Names {
            functions: self.functions,
            tables: tables.cloned().collect(),
        };
        let checked = |query: &Query| {
            check_query(query, &names).map_err(|error| error.or_at(self.source.start))
        };
        checked(&self.source.query)?;
        self.bucketed()?.iter().try_for_each(checked)
    }

    /// The query with the value of `BUCKET BY` as a last column.
    fn bucketed(&self) -> Result<Option<Query>> {
        let Some(by) = &self.source.bucket_by else {
            return Ok(None);
        };
        let text =
            format!("SELECT *, CAST((0) AS DOUBLE) AS {BUCKET_COLUMN} FROM (SELECT 1) AS query");
        let parsed = Parser::new(&GenericDialect {})
            .try_with_sql(&text)
            .and_then(|mut parser| parser.parse_query());
        let broken = || PlanError::internal("BUCKET BY was not wrapped");
        let mut query = *parsed.map_err(|_| broken())?;
        let SetExpr::Select(select) = query.body.as_mut() else {
            return Err(broken());
        };
        let Some(SelectItem::ExprWithAlias {
            expr: Expr::Cast { expr, .. },
            ..
        }) = select.projection.get_mut(1)
        else {
            return Err(broken());
        };
        **expr = by.clone();
        let Some(TableFactor::Derived { subquery, .. }) =
            select.from.first_mut().map(|from| &mut from.relation)
        else {
            return Err(broken());
        };
        subquery.clone_from(&self.source.query);
        Ok(Some(query))
    }

    /// Plans over `tables`, by the names that the query (its table functions replaced) gives them.
    pub(crate) fn plan(
        &self,
        tables: &BTreeMap<String, Arc<dyn TableProvider>>,
    ) -> Result<Pipeline> {
        let query = (*self.source.query).clone();
        let (query, plan) = self.planned(query, tables)?;
        let clauses = self.clauses(plan.schema())?;
        self.check_output(&query, &plan, &clauses)?;
        let bucketed = match self.bucketed()? {
            Some(query) => Some(self.planned(query, tables)?.1),
            None => None,
        };
        Ok(Pipeline {
            name: None,
            plan,
            bucketed,
            clauses,
            text: Some(self.source.text.clone()),
        })
    }

    fn planned(
        &self,
        mut query: Query,
        tables: &BTreeMap<String, Arc<dyn TableProvider>>,
    ) -> Result<(Query, LogicalPlan)> {
        let parameters = |name: &str| {
            let function = self.state.scalar_functions().get(name)?;
            function.signature().parameter_names.clone()
        };
        fold_arguments(&mut query, &parameters).map_err(|error| error.or_at(self.source.start))?;
        replace_table_calls(&mut query);
        settle_names(&mut query, tables).map_err(|error| error.or_at(self.source.start))?;
        let context = QueryContext {
            state: self.state,
            tables,
        };
        let plan_typed = |query: &Query| match plan_long_list(&context, query) {
            Some(plan) => Ok(plan),
            None => check_casts(context.analyze(context.plan(query)?)?),
        };
        let plan = plan_typed(&query).map_err(|error| {
            if let Some(mistake) = repeated_item(&query, &error) {
                return mistake;
            }
            Diagnosis {
                query: &query,
                start: self.source.start,
            }
            .explain(&error, &|query| plan_typed(query).map(drop))
        })?;
        mix::check(&plan).map_err(|error| {
            let place = place_of(&query, &error);
            error.or_at(place.unwrap_or(self.source.start))
        })?;
        Ok((query, plan))
    }

    /// The clauses, with the columns that they name as the query spells them.
    fn clauses(&self, schema: &DFSchema) -> Result<Clauses> {
        let mut clauses = self.source.clauses.clone();
        let positions = &self.source.positions;
        let position = positions.group.or(positions.batch).or(positions.cache);
        settle_clauses(&mut clauses, &self.source.unquoted, schema)
            .map_err(|error| error.or_at(position.unwrap_or(self.source.start)))?;
        Ok(clauses)
    }

    fn check_output(&self, query: &Query, plan: &LogicalPlan, clauses: &Clauses) -> Result<()> {
        if let Some((name, nth)) = duplicate(plan.schema()) {
            let position = item_position(query, &name, nth).unwrap_or(self.source.start);
            return Err(two_columns(&name, Some(position)));
        }
        let positions = &self.source.positions;
        check_groups(plan.schema(), clauses, positions)?;
        match clauses.batch {
            Some(_) => check_batch(plan.schema(), positions.batch),
            None => Ok(()),
        }
    }
}

/// A name that a schema has more than once, and the index of its second column.
pub(crate) fn duplicate(schema: &DFSchema) -> Option<(String, usize)> {
    let mut seen = BTreeSet::new();
    schema
        .fields()
        .iter()
        .enumerate()
        .find(|(_, field)| !seen.insert(field.name()))
        .map(|(at, field)| (field.name().clone(), at))
}

pub(crate) fn two_columns(name: &str, position: Option<Position>) -> PlanError {
    PlanError::at(position, format!("two columns are named \"{name}\""))
        .with_hint("give one another name with AS")
}

/// Refuses batches of tensors whose shape is not known to be the same in every row.
pub(crate) fn check_batch(schema: &DFSchema, position: Option<Position>) -> Result<()> {
    let variable = schema
        .fields()
        .iter()
        .find(|field| field.extension_type_name() == Some("arrow.variable_shape_tensor"));
    match variable {
        None => Ok(()),
        Some(field) => Err(PlanError::at(
            position,
            format!(
                "BATCH needs rows of one shape, but the shape of \"{}\" varies",
                field.name()
            ),
        )
        .with_hint("bring it to a fixed size with resize, center_crop or random_resized_crop")),
    }
}

/// Refuses casts between types that have none, which DataFusion would only find out when it runs them, and fields that
/// cannot be null where their struct is.
pub(crate) fn check_casts(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    plan.apply_with_subqueries(|node| {
        let mut schema = DFSchema::empty();
        for input in node.inputs() {
            schema.merge(input.schema());
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let LogicalExpr::Cast(cast) = expr
                    // Columns of an outer query have no type here.
                    && let Ok(from) = cast.expr.get_type(&schema)
                    && !can_cast_types(&from, cast.field.data_type())
                {
                    return plan_err!("{from} cannot be cast to {}", cast.field.data_type());
                }
                check_rows_apart(expr)?;
                if let LogicalExpr::ScalarFunction(call) = expr
                    && call.name() == "get_field"
                    && let Ok(found @ (DataType::Union(..) | DataType::RunEndEncoded(..))) =
                        expr.get_type(&schema)
                {
                    return plan_err!(
                        "a field of type {found} has no nulls of its own, and cannot be taken out of a struct"
                    );
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(plan)
}

/// Refuses calls in which DataFusion mixes rows: `array_sort` sorts the lists of all rows as the first row says, and `map`
/// lines up the keys and the values of all rows at once, so that a row with one key too many takes a value of the next.
fn check_rows_apart(expr: &LogicalExpr) -> DataFusionResult<()> {
    let LogicalExpr::ScalarFunction(call) = expr else {
        return Ok(());
    };
    let is_constant = |arg: &LogicalExpr| arg.column_refs().is_empty();
    let length = |arg: &LogicalExpr| match arg {
        LogicalExpr::ScalarFunction(made) if made.name() == "make_array" => Some(made.args.len()),
        _ => None,
    };
    match (call.name(), call.args.as_slice()) {
        ("array_sort", [_, order @ ..]) if !order.iter().all(is_constant) => {
            plan_err!(
                "array_sort expects constants for its order: 'ASC' or 'DESC', and 'NULLS FIRST' or 'NULLS LAST'"
            )
        }
        ("map", [keys, values])
            if !(is_constant(keys) && is_constant(values))
                && (length(keys).is_none() || length(keys) != length(values)) =>
        {
            plan_err!(
                "map expects its keys and values in brackets, as many of each: MAP {{'a': x, 'b': y}}"
            )
        }
        _ => Ok(()),
    }
}

/// The mistake of a select list with the same item twice, which DataFusion reports without a place.
fn repeated_item(query: &Query, error: &DataFusionError) -> Option<PlanError> {
    if !message_of(error).starts_with("Projections require unique expression names") {
        return None;
    }
    let (mut items, mut names) = (HashSet::new(), HashSet::new());
    for item in &select_of(query)?.projection {
        let name = output(item);
        let is_new_name = name.as_ref().is_none_or(|name| names.insert(name.clone()));
        if !items.insert(item) || !is_new_name {
            let name = name.unwrap_or_else(|| item.to_string());
            return Some(two_columns(&name, Position::of_span(item.span())));
        }
    }
    None
}

/// The first `SELECT` of a query, which names its columns.
fn select_of(query: &Query) -> Option<&Select> {
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Query(query) => body = &query.body,
            _ => return None,
        }
    }
}

/// The name that a select item gives its column, where the text shows it.
fn output(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(normalize(alias)),
        SelectItem::UnnamedExpr(Expr::Identifier(ident)) => Some(normalize(ident)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(normalize),
        _ => None,
    }
}

/// Where the select item that gives a duplicated name stands.
fn item_position(query: &Query, name: &str, nth: usize) -> Option<Position> {
    let select = select_of(query)?;
    let mut named = select
        .projection
        .iter()
        .filter(|item| output(item).as_deref() == Some(name));
    let item = named
        .next_back()
        .or_else(|| {
            select.projection.iter().find(|item| {
                matches!(
                    item,
                    SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
                )
            })
        })
        .or_else(|| select.projection.get(nth))?;
    Position::of_span(item.span())
}
