//! A planned pipeline, from SQL text or from the Rust builder.

use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, plan_datafusion_err};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

use crate::batches;
use crate::clauses::Clauses;
use crate::error::PlanError;

pub use crate::key_columns::{BUCKET_COLUMN, LENGTH_COLUMN, is_hidden};

/// A pipeline: a plan over stored rows, and the clauses that turn the plan's rows into batches.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// The pipeline's name, if it was registered.
    pub name: Option<String>,
    /// The plan as written: types are checked and coerced, but nothing is optimised.
    pub plan: LogicalPlan,
    /// `plan` with the value of the `BUCKET BY` expression as an additional, hidden last column;
    /// `None` without `BUCKET BY`.
    pub bucketed: Option<LogicalPlan>,
    /// The training clauses.
    pub clauses: Clauses,
    /// The SQL text, if the pipeline came from text.
    pub text: Option<String>,
}

impl Pipeline {
    /// True if the clauses reorder or drop rows of the plan. Such a pipeline cannot be inlined into
    /// another pipeline.
    pub fn reorders(&self) -> bool {
        self.clauses.shuffle.is_some() || self.clauses.skip > 0 || self.clauses.take.is_some()
    }

    /// Returns the columns of the pipeline's batches.
    ///
    /// Fails if a clause does not fit the columns of the query. Planning a pipeline already checks
    /// this.
    pub fn batch_schema(&self) -> Result<SchemaRef, PlanError> {
        let rows = self.plan.schema().as_arrow();
        batches::schema(rows, &self.clauses).map_err(|why| PlanError::mistake(why.message()))
    }

    /// Returns the plan to compile: the query, with hidden last columns that decide how rows are
    /// grouped.
    ///
    /// # Errors
    /// Fails if the plan lacks a column that the clauses name.
    pub fn keyed(&self) -> Result<LogicalPlan> {
        let plan = self.bucketed.as_ref().unwrap_or(&self.plan);
        let Some(name) = self.clauses.length_of() else {
            return Ok(plan.clone());
        };
        let columns = plan.schema().columns();
        let of = columns.iter().find(|column| column.name == *name);
        let of = of.ok_or_else(|| plan_datafusion_err!("column \"{name}\" not found"))?;
        let length = forebay_udfs::length_of(Expr::Column(of.clone())).alias(LENGTH_COLUMN);
        let all = columns.into_iter().map(Expr::Column).chain([length]);
        LogicalPlanBuilder::from(plan.clone()).project(all)?.build()
    }
}
