//! The time of day as a constant of the pipeline.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Functions that read the clock.
const CLOCK: [&str; 3] = ["now", "current_date", "current_time"];

/// Replaces `now()`, `current_date` and the like by the time of this call, so that every epoch and
/// every worker sees the same one.
pub(crate) fn bind_clock(plan: LogicalPlan) -> Result<LogicalPlan> {
    let context = SimplifyContext::builder().with_current_time().build();
    plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let bound = expr.transform_up(|expr| bind(expr, &context))?;
            Ok(bound.update_data(|expr| name.restore(expr)))
        })?
        .map_data(|node| node.recompute_schema())
    })
    .map(|transformed| transformed.data)
}

fn bind(expr: Expr, context: &SimplifyContext) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(mut call) = expr else {
        return Ok(Transformed::no(expr));
    };
    if !CLOCK.contains(&call.func.name()) {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    }
    match call
        .func
        .simplify(std::mem::take(&mut call.args), context)?
    {
        ExprSimplifyResult::Simplified(literal) => Ok(Transformed::yes(literal)),
        ExprSimplifyResult::Original(_) => {
            plan_err!(
                "{}() cannot be bound to the time of planning",
                call.func.name()
            )
        }
    }
}
