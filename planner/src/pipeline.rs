//! A planned pipeline, from either front end.

use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, plan_datafusion_err};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

use crate::batches;
use crate::clauses::Clauses;
use crate::error::PlanError;

/// Name of the hidden column that has the lengths of sequences which packs and batches count.
pub const LENGTH_COLUMN: &str = "__length";
/// Name of the hidden column that decides the bucket of a row.
pub const BUCKET_COLUMN: &str = "__bucket";

/// Whether a column of a compiled plan is a hidden one, which decides groups and reaches no batch.
pub fn is_hidden(column: &str) -> bool {
    column == LENGTH_COLUMN || column == BUCKET_COLUMN
}

/// A pipeline: a plan over stored rows, and what happens to its rows on the way to the trainer.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// Its name, if it was registered.
    pub name: Option<String>,
    /// The plan as written: types are checked and coerced, nothing is optimised.
    pub plan: LogicalPlan,
    /// The same with the value of `BUCKET BY` as a last, hidden column, if there is one.
    pub bucketed: Option<LogicalPlan>,
    /// The training clauses.
    pub clauses: Clauses,
    /// The SQL text, if it came from text.
    pub text: Option<String>,
}

impl Pipeline {
    /// Whether the rows come in another order, or other rows, than those of the plan alone. Such a
    /// pipeline cannot be inlined into another one.
    pub fn reorders(&self) -> bool {
        self.clauses.shuffle.is_some() || self.clauses.skip > 0 || self.clauses.take.is_some()
    }

    /// The columns of its batches.
    ///
    /// # Errors
    /// A clause does not fit the columns of the query, which is found when a pipeline is made.
    pub fn batch_schema(&self) -> Result<SchemaRef, PlanError> {
        let rows = self.plan.schema().as_arrow();
        batches::schema(rows, &self.clauses).map_err(|why| PlanError::mistake(why.message()))
    }

    /// The plan with what decides groups as hidden last columns: what is compiled.
    ///
    /// # Errors
    /// The plan has no column that the clauses name.
    pub fn keyed(&self) -> Result<LogicalPlan> {
        let plan = self.bucketed.as_ref().unwrap_or(&self.plan);
        let Some(name) = self.clauses.length_of() else {
            return Ok(plan.clone());
        };
        let columns = plan.schema().columns();
        let of = columns.iter().find(|column| column.name == *name);
        let of = of.ok_or_else(|| plan_datafusion_err!("there is no column \"{name}\""))?;
        let length = forebay_udfs::length_of(Expr::Column(of.clone())).alias(LENGTH_COLUMN);
        let all = columns.into_iter().map(Expr::Column).chain([length]);
        LogicalPlanBuilder::from(plan.clone()).project(all)?.build()
    }
}
