//! Plans a parsed query as a pipeline.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::{DFSchema, DataFusionError};
use datafusion::datasource::ViewTable;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use sqlparser::ast::{
    CastKind, DataType as SqlType, ExactNumberInfo, Expr, Ident, ObjectName, Query, Select,
    SelectItem, SetExpr, Spanned, WildcardAdditionalOptions,
};

use super::casts::check_casts;
use super::check::{KnownNames, check_query};
use super::cursor::normalize;
use super::diagnose::Diagnosis;
use super::fold::fold_arguments;
use super::long_list::plan_long_list;
use super::mix::place_of;
use super::names::{settle_clauses, settle_names};
use super::provider::QueryContext;
use super::select::{select, table};
use super::statement::PipelineQuery;
use super::table_function::replace_table_calls;
use crate::clauses::Clauses;
use crate::error::{PlanError, Position, Result, message_of};
use crate::functions::FunctionNames;
use crate::groups::check_groups;
use crate::mix;
use crate::output::{check_batch, duplicate, two_columns};
use crate::pipeline::{BUCKET_COLUMN, Pipeline};

/// Name of the generated table that holds the query's output rows, from which `BUCKET BY` reads.
/// Error messages may contain this name.
const ROWS: &str = "query";

/// The planner of one query.
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
        let mut names = KnownNames {
            functions: self.functions,
            tables: tables.cloned().collect(),
        };
        let checked = |query: &Query, names: &KnownNames<'_>| {
            check_query(query, names).map_err(|error| error.or_at(self.source.start))
        };
        checked(&self.source.query, &names)?;
        let Some(bucketed) = self.bucketed() else {
            return Ok(());
        };
        names.tables.insert(ROWS.to_owned());
        checked(&bucketed, &names)
    }

    /// Returns a query that selects all columns of this query and, as a last column, the value of
    /// `BUCKET BY`; `None` without `BUCKET BY`.
    fn bucketed(&self) -> Option<Query> {
        let by = self.source.bucket_by.as_ref()?;
        let cast = Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(by.clone()),
            data_type: SqlType::Double(ExactNumberInfo::None),
            array: false,
            format: None,
        };
        let bucket = SelectItem::ExprWithAlias {
            expr: cast,
            alias: Ident::new(BUCKET_COLUMN),
        };
        let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
        let rows = table(ObjectName::from(vec![Ident::new(ROWS)]), None);
        Some(select(vec![all, bucket], rows))
    }

    /// Plans the query over `tables`. The keys of `tables` are the names that the query contains
    /// after the query's table function calls have been replaced.
    pub(crate) fn plan(
        &self,
        tables: &BTreeMap<String, Arc<dyn TableProvider>>,
    ) -> Result<Pipeline> {
        let query = (*self.source.query).clone();
        let (query, plan) = self.planned(query, tables)?;
        let clauses = self.clauses(plan.schema())?;
        self.check_output(&query, &plan, &clauses)?;
        let bucketed = match self.bucketed() {
            Some(query) => {
                let mut tables = tables.clone();
                let rows = ViewTable::new(plan.clone(), None);
                tables.insert(ROWS.to_owned(), Arc::new(rows));
                Some(self.planned(query, &tables)?.1)
            }
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
            .with_source(error)
        })?;
        mix::check(&plan).map_err(|error| {
            let place = place_of(&query, &error);
            error.or_at(place.unwrap_or(self.source.start))
        })?;
        Ok((query, plan))
    }

    /// Returns the clauses, with column names spelled as in the query's output.
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

/// Returns the error for a duplicate select item, with the position that DataFusion does not
/// report; `None` if `error` has another cause.
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

/// Returns the first `SELECT` of a query, which determines the names of the query's columns.
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

/// Returns the column name of a select item; `None` if the item itself contains no such name.
fn output(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(normalize(alias)),
        SelectItem::UnnamedExpr(Expr::Identifier(ident)) => Some(normalize(ident)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(normalize),
        _ => None,
    }
}

/// Returns the position of the select item whose column `name` is a duplicate.
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
