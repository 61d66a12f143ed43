//! Checks the positions of MIX operators in a plan.

use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Extension, LogicalPlan};

use super::node::MixNode;
use crate::error::{PlanError, mistake_within};
use crate::rows::lower::lower;

/// Refuses a plan with a MIX in a position where MIX is not allowed. Other errors of `plan` are
/// ignored here, because compilation reports them.
///
/// # Errors
/// Fails if a MIX is in a wrong position. The error has no position in the SQL text.
pub(crate) fn check(plan: &LogicalPlan) -> Result<(), PlanError> {
    if !has_mix(plan).unwrap_or(true) {
        return Ok(());
    }
    match lower(plan) {
        Ok(_) => Ok(()),
        Err(error) => match mistake_within(&error) {
            Some(mistake) => Err(PlanError::Mistake(Box::new(mistake.clone()))),
            None => Ok(()),
        },
    }
}

fn has_mix(plan: &LogicalPlan) -> Result<bool, DataFusionError> {
    let mut found = false;
    plan.apply(|node| {
        found |= match node {
            LogicalPlan::Extension(Extension { node }) => node.as_any().is::<MixNode>(),
            LogicalPlan::TableScan(scan) => match scan.source.get_logical_plan() {
                Some(view) => has_mix(&view)?,
                None => false,
            },
            _ => false,
        };
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}
