//! From a parsed query to a planned pipeline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use sqlparser::ast::{Expr, Query, SelectItem, SetExpr, Spanned};

use super::bind::bind_clock;
use super::check::{Names, check_query};
use super::cursor::normalize;
use super::diagnose::Diagnosis;
use super::fold::fold_arguments;
use super::provider::QueryContext;
use super::statement::PipelineQuery;
use super::table_function::replace_table_calls;
use crate::error::{PlanError, Position, Result};
use crate::pipeline::Pipeline;

/// Plans one query.
pub(crate) struct QueryPlanner<'a> {
    state: &'a SessionState,
    source: &'a PipelineQuery,
    functions: &'a BTreeSet<String>,
}

impl<'a> QueryPlanner<'a> {
    pub(crate) fn new(
        state: &'a SessionState,
        source: &'a PipelineQuery,
        functions: &'a BTreeSet<String>,
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
        check_query(&self.source.query, &names)
    }

    /// Plans over `tables`, by the names that the query (its table functions replaced) gives them.
    pub(crate) fn plan(
        &mut self,
        tables: &BTreeMap<String, Arc<dyn TableProvider>>,
    ) -> Result<Pipeline> {
        let mut query = (*self.source.query).clone();
        let parameters = |name: &str| {
            let function = self.state.scalar_functions().get(name)?;
            function.signature().parameter_names.clone()
        };
        fold_arguments(&mut query, &parameters)?;
        replace_table_calls(&mut query);
        let context = QueryContext {
            state: self.state,
            tables,
        };
        let plan_typed = |query: &Query| {
            let plan = bind_clock(context.plan(query)?)?;
            context.analyze(plan)
        };
        let plan = plan_typed(&query).map_err(|error| {
            Diagnosis {
                query: &query,
                start: self.source.start,
            }
            .explain(&error, &|query| plan_typed(query).map(drop))
        })?;
        self.check_output(&query, &plan)?;
        Ok(Pipeline {
            name: None,
            plan,
            clauses: self.source.clauses,
            text: Some(self.source.text.clone()),
        })
    }

    fn check_output(&self, query: &Query, plan: &LogicalPlan) -> Result<()> {
        if let Some((name, nth)) = duplicate(plan.schema()) {
            let position = item_position(query, &name, nth).unwrap_or(self.source.start);
            return Err(two_columns(&name, Some(position)));
        }
        match self.source.clauses.batch {
            Some(_) => check_batch(plan.schema(), self.source.positions.batch),
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

/// Where the select item that gives a duplicated name stands.
fn item_position(query: &Query, name: &str, nth: usize) -> Option<Position> {
    let mut body = query.body.as_ref();
    let select = loop {
        match body {
            SetExpr::Select(select) => break select,
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Query(query) => body = &query.body,
            _ => return None,
        }
    };
    let output = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(normalize(alias)),
        SelectItem::UnnamedExpr(Expr::Identifier(ident)) => Some(normalize(ident)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(normalize),
        _ => None,
    };
    let named = select
        .projection
        .iter()
        .filter(|item| output(item).as_deref() == Some(name));
    let item = named
        .last()
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
