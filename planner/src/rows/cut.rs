//! The cut of a plan between the workers of a cluster and their client.
//!
//! Workers send their rows to the client, so the last steps of a plan are cheaper in the client if
//! all they do is make rows wider: `normalize` of a byte image makes each sample four times as wide.
//! A byte that is sent costs both sides about a nanosecond of CPU time each; the conversion of a
//! sample costs a tenth of that wherever it is computed (`benches/README.md`, "Cluster"). So all
//! such steps are the client's.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;
use forebay_udfs::split_widening;

use super::columns::ColumnIndex;
use super::expr::{human, slot};
use super::op::{NamedExpr, RowOp};
use super::plan::RowPlan;

/// A plan in two parts.
#[derive(Debug, Clone)]
pub struct PlanCut {
    /// The part that workers compute. It has the columns of the plan, some of them narrower.
    pub below: RowPlan,
    /// The part that the client computes. Its leaf is a [`RowOp::Cache`] without input, whose rows
    /// are those of `below`.
    pub above: RowPlan,
    /// The columns that the client computes, each as `name = expression`.
    pub steps: Vec<String>,
}

/// Cuts `plan` below the last steps that only make its rows wider; `None` if it has no such steps.
///
/// # Errors
/// Fails if an expression has no type.
pub fn cut(plan: &RowPlan) -> Result<Option<PlanCut>> {
    let (RowOp::Project { exprs }, [input]) = (&plan.op, plan.inputs.as_slice()) else {
        return Ok(None);
    };
    let columns = ColumnIndex::of(&input.schema);
    let (mut below, mut above, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for NamedExpr { name, expr } in exprs {
        let split = split_widening(expr, |expr| columns.field_of(expr).ok());
        let (first, last) = match split {
            Some(split) => {
                let last = called(&split.last, name);
                steps.push(format!("{name} = {}", human(&last.expr)));
                (split.first, last)
            }
            None => (expr.clone(), passed(name)),
        };
        below.push(NamedExpr {
            name: name.clone(),
            expr: first,
        });
        above.push(last);
    }
    if steps.is_empty() {
        return Ok(None);
    }
    let below = RowPlan::project(input.clone(), below)?;
    let leaf = RowPlan {
        op: RowOp::Cache,
        inputs: Vec::new(),
        schema: Arc::clone(&below.schema),
    };
    let above = RowPlan::project(leaf, above)?;
    let is_same = above.schema == plan.schema;
    Ok(is_same.then_some(PlanCut {
        below,
        above,
        steps,
    }))
}

/// Returns the column `name` as `function` of the slot of that name.
fn called(function: &Arc<ScalarUDF>, name: &str) -> NamedExpr {
    NamedExpr {
        name: name.to_owned(),
        expr: function.call(vec![slot(name)]),
    }
}

/// Returns the column `name`, passed on.
fn passed(name: &str) -> NamedExpr {
    NamedExpr {
        name: name.to_owned(),
        expr: slot(name),
    }
}
