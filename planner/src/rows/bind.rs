//! Binds random function calls: adds to each call two arguments, the number of its random stream
//! and the hidden row column.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// True if a query calls a function that draws random numbers. The draws depend on row keys.
pub fn draws(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|e| {
                Ok(matches!(e, Expr::ScalarFunction(call) if forebay_udfs::is_random(call.func.name())))
            })?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

/// Assigns a stream number to each random call of a plan, in the order in which calls are bound.
#[derive(Debug, Default)]
pub struct Streams {
    next: u64,
}

impl Streams {
    /// Binds the random calls of `expr`. Calls within a call's arguments are bound before the call.
    pub fn bind(&mut self, expr: Expr) -> Result<Expr> {
        let bound = expr.transform_up(|e| match e {
            Expr::ScalarFunction(call) if forebay_udfs::is_random(call.func.name()) => {
                let ordinal = self.next;
                self.next += 1;
                Ok(Transformed::yes(forebay_udfs::bind_stream(call, ordinal)?))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(bound.data)
    }
}
