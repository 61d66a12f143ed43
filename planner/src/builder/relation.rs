//! Plans the `filter`, `with_column` and `select` calls of a builder, as SQL plans the equivalent
//! query.

use std::collections::BTreeMap;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DataFusionError};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

use super::expr::resolve;
use super::text::TextReader;
use crate::catalog::Catalog;
use crate::error::{PlanError, Result};
use crate::functions::FunctionNames;
use crate::mix;
use crate::output::{duplicate, two_columns};
use crate::sql::{check_casts, explain_unplaced, several, spelled};

/// A builder call that changes the rows or the columns.
#[derive(Debug, Clone)]
pub(super) enum RelationStep {
    Filter(Expr),
    WithColumn(String, Expr),
    Select(Vec<Expr>),
}

/// A plan, and a pending select list over the plan's columns.
///
/// Consecutive `with_column` and `select` calls become one select list, in which a column that an
/// earlier call computed is replaced by the column's expression. If this replacement would copy a
/// computed expression, the select list is closed instead (it becomes part of the plan), and a new
/// list begins: two copies of a random function would draw twice.
pub(super) struct Relation<'a> {
    state: SessionState,
    functions: &'a FunctionNames,
    plan: LogicalPlan,
    pending: Option<Vec<Expr>>,
}

impl<'a> Relation<'a> {
    pub(super) fn new(catalog: &'a Catalog, plan: LogicalPlan) -> Self {
        Self {
            state: catalog.session().state(),
            functions: catalog.functions(),
            plan,
            pending: None,
        }
    }

    pub(super) fn apply(&mut self, step: RelationStep) -> Result<()> {
        match step {
            RelationStep::Filter(predicate) => {
                let predicate = self.resolve(self.reader()?.one(predicate)?)?;
                self.close()?;
                self.build(|builder| builder.filter(predicate))
            }
            RelationStep::WithColumn(name, value) => {
                if name.is_empty() {
                    return Err(PlanError::mistake("with_column expects a name, found none"));
                }
                let value = self.resolve(self.reader()?.one(value)?)?.unalias();
                let mut columns: Vec<Expr> = self.names().into_iter().map(Expr::Column).collect();
                let value = value.alias(&name);
                match self.names().iter().position(|column| column.name == name) {
                    Some(at) => columns[at] = value,
                    None => columns.push(value),
                }
                self.select(columns)
            }
            RelationStep::Select(columns) => {
                if columns.is_empty() {
                    return Err(PlanError::mistake("select expects a column, found none"));
                }
                let reader = self.reader()?;
                let mut items = Vec::with_capacity(columns.len());
                for column in columns {
                    for item in reader.items(column)? {
                        items.push(self.resolve(item)?);
                    }
                }
                self.select(items)
            }
        }
    }

    /// Returns the plan, with coerced types, after the checks of SQL queries.
    pub(super) fn finish(mut self) -> Result<LogicalPlan> {
        // Every SQL query has a select list, so the plan gets that of `SELECT *` if none is
        // pending.
        if self.pending.is_none() {
            self.pending = Some(self.names().into_iter().map(Expr::Column).collect());
        }
        self.close()?;
        let config = self.state.config_options();
        let plan = self
            .state
            .analyzer()
            .execute_and_check(self.plan, config, |_, _| {})
            .and_then(check_casts)
            .map_err(|error| explain(&error))?;
        mix::check(&plan)?;
        match duplicate(plan.schema()) {
            Some((name, _)) => Err(two_columns(&name, None)),
            None => Ok(plan),
        }
    }

    fn resolve(&self, expr: Expr) -> Result<Expr> {
        resolve(expr, &self.state, self.functions)
            .and_then(|expr| self.spell(expr))
            .map_err(|error| explain(&error))
    }

    /// Replaces each column name in `expr` by the spelling of that column among the current output
    /// columns.
    fn spell(&self, expr: Expr) -> Result<Expr, DataFusionError> {
        let columns = self.names();
        let spelled = expr.transform_up(|expr| {
            let Expr::Column(column) = expr else {
                return Ok(Transformed::no(expr));
            };
            let known = columns.iter().map(|known| known.name.as_str());
            match spelled(&column.name, known) {
                Ok(Some(found)) if found != column.name => {
                    let column = Column::new(column.relation, found);
                    Ok(Transformed::yes(Expr::Column(column)))
                }
                Ok(_) => Ok(Transformed::no(Expr::Column(column))),
                Err(alike) => Err(several(&column.name, &alike, None).into()),
            }
        })?;
        Ok(spelled.data)
    }

    /// Creates a reader of SQL texts over the current output columns.
    fn reader(&self) -> Result<TextReader<'_>> {
        let columns = match &self.pending {
            None => SchemaRef::clone(self.plan.schema().inner()),
            Some(columns) => {
                let builder = LogicalPlanBuilder::from(self.plan.clone());
                let plan = builder
                    .project(columns.clone())
                    .and_then(LogicalPlanBuilder::build)
                    .map_err(|error| explain(&error))?;
                SchemaRef::clone(plan.schema().inner())
            }
        };
        Ok(TextReader {
            columns,
            state: &self.state,
            functions: self.functions,
        })
    }

    /// The current output columns.
    fn names(&self) -> Vec<Column> {
        match &self.pending {
            Some(exprs) => exprs.iter().map(output).collect(),
            None => self.plan.schema().columns(),
        }
    }

    /// Applies a select list to the current output columns.
    fn select(&mut self, columns: Vec<Expr>) -> Result<()> {
        let Some(pending) = &self.pending else {
            self.pending = Some(columns);
            return Ok(());
        };
        match merge(pending, &columns).map_err(|error| explain(&error))? {
            Some(merged) => self.pending = Some(merged),
            None => {
                self.close()?;
                self.pending = Some(columns);
            }
        }
        Ok(())
    }

    /// Makes the pending select list part of the plan.
    fn close(&mut self) -> Result<()> {
        match self.pending.take() {
            Some(columns) => self.build(|builder| builder.project(columns)),
            None => Ok(()),
        }
    }

    fn build(
        &mut self,
        step: impl FnOnce(LogicalPlanBuilder) -> Result<LogicalPlanBuilder, DataFusionError>,
    ) -> Result<()> {
        let builder = step(LogicalPlanBuilder::from(self.plan.clone()));
        self.plan = builder
            .and_then(LogicalPlanBuilder::build)
            .map_err(|error| explain(&error))?;
        Ok(())
    }
}

/// Converts a DataFusion error to a [`PlanError`] without a position.
pub(super) fn explain(error: &DataFusionError) -> PlanError {
    explain_unplaced(error)
}

fn output(expr: &Expr) -> Column {
    let (relation, name) = expr.qualified_name();
    Column::new(relation, name)
}

/// Returns `outer` with each column that `outer` reads replaced by the expression of `inner` that
/// defines the column. `None` if an expression would be computed twice, or if `inner` lacks a
/// column that `outer` reads, or defines a column twice.
fn merge(inner: &[Expr], outer: &[Expr]) -> Result<Option<Vec<Expr>>, DataFusionError> {
    let mut made: BTreeMap<String, (&Expr, usize)> = BTreeMap::new();
    for expr in inner {
        if made.insert(output(expr).name, (expr, 0)).is_some() {
            return Ok(None);
        }
    }
    for expr in outer {
        for used in columns_in_order(expr)? {
            match made.get_mut(&used.name) {
                Some((_, uses)) => *uses += 1,
                // An unknown column is reported when the outer list is planned.
                None => return Ok(None),
            }
        }
    }
    let twice = made
        .values()
        .any(|(expr, uses)| *uses > 1 && !matches!(expr, Expr::Column(_)));
    if twice {
        return Ok(None);
    }
    let merged = outer
        .iter()
        .map(|expr| substitute(expr, &made))
        .collect::<Result<_, _>>()?;
    Ok(Some(merged))
}

/// Returns the columns that an expression reads, once for each use.
fn columns_in_order(expr: &Expr) -> Result<Vec<Column>, DataFusionError> {
    let mut columns = Vec::new();
    expr.apply(|node| {
        if let Expr::Column(column) = node {
            columns.push(column.clone());
        }
        Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
    })?;
    Ok(columns)
}

fn substitute(
    expr: &Expr,
    made: &BTreeMap<String, (&Expr, usize)>,
) -> Result<Expr, DataFusionError> {
    if let Expr::Column(column) = expr
        && let Some((inner, _)) = made.get(&column.name)
    {
        return Ok((*inner).clone());
    }
    let name = expr.schema_name().to_string();
    let replaced = expr.clone().transform_up(|node| match &node {
        Expr::Column(column) => match made.get(&column.name) {
            Some((inner, _)) => Ok(Transformed::yes((*inner).clone().unalias())),
            None => Ok(Transformed::no(node)),
        },
        _ => Ok(Transformed::no(node)),
    })?;
    // The output column keeps the name that `expr` had before the replacement.
    let changed = replaced.data.schema_name().to_string() != name;
    Ok(if changed {
        replaced.data.alias(name)
    } else {
        replaced.data
    })
}
