//! The last steps of a plan, which the client of a cluster applies to the rows of its workers.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Result as EngineResult;
use datafusion::execution::TaskContext;
use forebay_planner::rows::RowPlan;
use forebay_planner::rows::cut::{PlanCut, cut};

use super::OpenJob;
use crate::error::Result;
use crate::fragment::concat::is_oversized;
use crate::fragment::row_batch::{RowBatch, hidden_schema};
use crate::fragment::scan::Leaf;
use crate::fragment::{Fragment, NodeTotals};

/// The steps of a plan above its [cut](mod@forebay_planner::rows::cut).
#[derive(Debug)]
pub struct LastSteps {
    fragment: Fragment,
    received: SchemaRef,
    steps: Vec<String>,
}

impl LastSteps {
    /// Returns the last steps of `plan`; `None` if workers compute all steps.
    ///
    /// # Errors
    /// Fails if the plan cannot be cut.
    pub fn of(plan: &RowPlan) -> EngineResult<Option<Self>> {
        let Some(PlanCut {
            below,
            above,
            steps,
        }) = cut(plan)?
        else {
            return Ok(None);
        };
        Ok(Some(Self {
            fragment: Fragment::try_new(&above, Vec::new())?,
            received: hidden_schema(&below.schema),
            steps,
        }))
    }

    /// Returns the schema of the record batches that workers send: the columns below the cut, then
    /// the hidden columns.
    pub const fn received_schema(&self) -> &SchemaRef {
        &self.received
    }

    /// Returns the columns that the steps compute, each as `name = expression`.
    pub fn steps(&self) -> &[String] {
        &self.steps
    }

    /// Applies the steps to the rows of a segment of `job`, on the threads of the job.
    ///
    /// # Errors
    /// Fails if a step fails for a reason other than a row.
    pub async fn apply(
        self: &Arc<Self>,
        job: &OpenJob,
        rows: Vec<RowBatch>,
    ) -> Result<Vec<RowBatch>> {
        let (steps, ctx) = (Arc::clone(self), Arc::clone(&job.env().ctx));
        let apply = move || {
            let mut pieces = Vec::with_capacity(rows.len());
            for rows in rows {
                steps.apply_to(rows, &ctx, &mut pieces)?;
            }
            Ok(pieces)
        };
        Ok(job.env().pool.run(apply).await?)
    }

    /// Applies the steps to `rows`, and appends the results to `pieces`. Rows whose results do not
    /// fit into one batch are divided in halves.
    fn apply_to(
        &self,
        rows: RowBatch,
        ctx: &Arc<TaskContext>,
        pieces: &mut Vec<RowBatch>,
    ) -> EngineResult<()> {
        let half = rows.len() / 2;
        match self.fragment.run([(Leaf::Cache, rows.clone())].into(), ctx) {
            Ok(piece) => pieces.push(piece),
            Err(error) if is_oversized(&error) && half > 0 => {
                self.apply_to(rows.slice(0, half), ctx, pieces)?;
                self.apply_to(rows.slice(half, rows.len() - half), ctx, pieces)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the metrics of the topmost operator so far; `None` if there is no operator.
    pub fn totals(&self) -> Option<NodeTotals> {
        self.fragment.totals().into_iter().next()
    }
}
